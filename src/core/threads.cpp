#include "core/threads.hpp"

#ifdef __linux__
#include <sched.h>
#endif

#include <algorithm>

namespace lowbit::core {

int available_threads() {
#ifdef __linux__
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
    return std::max(1u, std::thread::hardware_concurrency());
}

ThreadPool::ThreadPool(int threads) {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
}

ThreadPool::~ThreadPool() {
    {
        std::lock_guard lock(mutex_);
        stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::take_part(Job& job) {
    try {
        for (int64_t i = job.next++; i < job.count; i = job.next++) (*job.body)(i);
    } catch (...) {
        job.next = job.count;  // nobody starts another piece
        std::lock_guard lock(mutex_);
        if (!job.error) job.error = std::current_exception();
    }
}

void ThreadPool::work() {
    uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    while (true) {
        wake_.wait(lock, [&] { return stop_ || (job_ && generation_ != seen); });
        if (stop_) return;
        seen = generation_;
        Job& job = *job_;
        ++active_;
        lock.unlock();
        take_part(job);
        lock.lock();
        if (--active_ == 0) done_.notify_one();
    }
}

void ThreadPool::run(int64_t count, const std::function<void(int64_t)>& body) {
    std::unique_lock busy(busy_, std::defer_lock);
    if (count <= 1 || workers_.empty() || !busy.try_lock()) {
        for (int64_t i = 0; i < count; ++i) body(i);
        return;
    }
    Job job;
    job.count = count;
    job.body = &body;
    {
        std::lock_guard lock(mutex_);
        job_ = &job;
        ++generation_;
    }
    wake_.notify_all();
    take_part(job);
    std::unique_lock lock(mutex_);
    job_ = nullptr;  // a worker that wakes late finds nothing
    done_.wait(lock, [&] { return active_ == 0; });
    if (job.error) std::rethrow_exception(job.error);
}

}  // namespace lowbit::core
