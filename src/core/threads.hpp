// The threads of a Context. Plain standard threads, a mutex and condition variables: the thread sanitizer sees every edge.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lowbit::core {

int available_threads();  // how many processors this process may run on

class ThreadPool {
public:
    explicit ThreadPool(int threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int threads() const { return int(workers_.size()) + 1; }

    // Runs body(0) ... body(count - 1), each once, on the pool's threads and the caller's; returns when all are done and passes on the
    // first exception. A call that finds the pool busy (another thread's call, or a call from inside a body) runs on the caller alone.
    void run(int64_t count, const std::function<void(int64_t)>& body);

private:
    struct Job {
        int64_t count = 0;
        const std::function<void(int64_t)>* body = nullptr;
        std::atomic<int64_t> next{0};
        std::exception_ptr error;  // guarded by mutex_
    };

    void work();
    void take_part(Job& job);

    std::mutex busy_;  // held by the caller whose job runs
    std::mutex mutex_;
    std::condition_variable wake_, done_;
    Job* job_ = nullptr;
    uint64_t generation_ = 0;
    int active_ = 0;  // workers inside the current job
    bool stop_ = false;
    std::vector<std::thread> workers_;
};

}  // namespace lowbit::core
