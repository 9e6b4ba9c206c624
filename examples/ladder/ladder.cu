// The INT8 product in seven steps, from the definition to the tensor cores of Hopper: runs each, compares, and prints one table.
// The steps are in 1_naive.cuh to 7_wgmma.cuh; README.md tells the story.
//
//     ladder [--size M N K]      4096 4096 4096 unless told
#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "1_naive.cuh"
#include "2_shared.cuh"
#include "3_vectors.cuh"
#include "4_dp4a.cuh"
#include "5_mma.cuh"
#include "6_pipelined.cuh"
#include "7_wgmma.cuh"

namespace {

using namespace ladder;

const Rung rungs[] = {naive, shared, vectors, dp4a, mma, pipelined, wgmma};

// A number that looks like chance, from its place in a row of them.
__host__ __device__ uint64_t scramble(uint64_t place) {
    place = (place + 1) * 0x9e3779b97f4a7c15u;
    place = (place ^ place >> 30) * 0xbf58476d1ce4e5b9u;
    return place ^ place >> 31;
}
__global__ void fill(int8_t* bytes, size_t count, uint64_t first) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x)
        bytes[i] = int8_t(scramble(first + i) >> 56);
}
__global__ void count_differences(const int32_t* left, const int32_t* right, size_t count, unsigned long long* differences) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x)
        if (left[i] != right[i]) atomicAdd(differences, 1ull);
}

template <class T>
T* allocate(size_t count) {
    void* pointer = nullptr;
    check(cudaMalloc(&pointer, count * sizeof(T)), "cudaMalloc");
    return static_cast<T*>(pointer);
}

struct Chip {
    cudaDeviceProp properties{};
    int clock_khz = 0;

    Chip() {
        int device = 0;
        check(cudaGetDevice(&device), "cudaGetDevice");
        check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
        check(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, device), "clock");
    }
    int capability() const { return properties.major * 10 + properties.minor; }
    // INT8, dense, at the highest clock; 0 where this program does not know.
    double peak_tops() const {
        int operations = 0;  // per multiprocessor and cycle
        if (capability() == 80) operations = 4096;
        if (capability() == 86 || capability() == 89) operations = 2048;
        if (capability() == 90) operations = 8192;
        return double(operations) * properties.multiProcessorCount * clock_khz * 1e3 / 1e12;
    }
};

// Several products of the same size with different numbers, more than the L2 cache holds: a launch finds nothing of its own in the cache.
class Products {
public:
    Products(int m, int n, int k, size_t cache_bytes) {
        const size_t bytes = size_t(m) * k + size_t(n) * k + size_t(m) * n * 4;
        const size_t sets = std::max<size_t>(2, 1 + (2 * cache_bytes + bytes - 1) / bytes);
        for (size_t s = 0; s < sets; ++s) {
            auto* a = allocate<int8_t>(size_t(m) * k);
            auto* b = allocate<int8_t>(size_t(n) * k);
            fill<<<1024, 256>>>(a, size_t(m) * k, next_byte_);
            next_byte_ += size_t(m) * k;
            fill<<<1024, 256>>>(b, size_t(n) * k, next_byte_);
            next_byte_ += size_t(n) * k;
            products_.push_back({a, b, allocate<int32_t>(size_t(m) * n), m, n, k});
        }
        check(cudaDeviceSynchronize(), "filling the matrices");
    }
    const Product& first() const { return products_[0]; }
    const Product& next() { return products_[turn_++ % products_.size()]; }
    size_t count() const { return products_.size(); }

private:
    std::vector<Product> products_;
    uint64_t next_byte_ = 0;
    size_t turn_ = 0;
};

// The median over samples of milliseconds per launch; a sample is as many launches as take some milliseconds.
double time_rung(const Rung& rung, Products& products) {
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
    const auto sample = [&](int launches) {
        check(cudaEventRecord(begin), "cudaEventRecord");
        for (int i = 0; i < launches; ++i) rung.launch(products.next());
        check(cudaEventRecord(end), "cudaEventRecord");
        check(cudaEventSynchronize(end), rung.name);
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
        return double(milliseconds) / launches;
    };
    const double estimate = sample(2);
    const int launches = std::clamp(int(5.0 / estimate), 1, 200), samples = estimate > 50 ? 3 : 11;
    std::vector<double> times;
    for (int i = 0; i < samples; ++i) times.push_back(sample(launches));
    check(cudaEventDestroy(begin), "cudaEventDestroy");
    check(cudaEventDestroy(end), "cudaEventDestroy");
    std::nth_element(times.begin(), times.begin() + samples / 2, times.end());
    return times[samples / 2];
}

// How many numbers of C differ from rung 1's.
unsigned long long differences(const Rung& rung, const Product& p, const int32_t* expected) {
    static auto* counter = allocate<unsigned long long>(1);
    const size_t count = size_t(p.m) * p.n;
    check(cudaMemset(counter, 0, sizeof *counter), "cudaMemset");
    check(cudaMemset(p.c, 0x55, count * sizeof(int32_t)), "cudaMemset");
    rung.launch(p);
    check(cudaGetLastError(), rung.name);
    count_differences<<<1024, 256>>>(p.c, expected, count, counter);
    unsigned long long found = 0;
    check(cudaMemcpy(&found, counter, sizeof found, cudaMemcpyDeviceToHost), rung.name);
    return found;
}

// Rung 1 against the CPU: how many of some numbers of C, the first and the last among them, are wrong.
int compare_with_cpu(const Product& p, const int32_t* result, int places) {
    const size_t numbers = size_t(p.m) * p.n;
    std::vector<int8_t> a(p.k), b(p.k);
    int wrong = 0;
    for (int i = 0; i < places; ++i) {
        const size_t place = i == 0 ? 0 : i == 1 ? numbers - 1 : scramble(uint64_t(i)) % numbers;
        int32_t got = 0, sum = 0;
        check(cudaMemcpy(a.data(), p.a + place / p.n * p.k, p.k, cudaMemcpyDeviceToHost), "cudaMemcpy");
        check(cudaMemcpy(b.data(), p.b + place % p.n * p.k, p.k, cudaMemcpyDeviceToHost), "cudaMemcpy");
        check(cudaMemcpy(&got, result + place, sizeof got, cudaMemcpyDeviceToHost), "cudaMemcpy");
        for (int k = 0; k < p.k; ++k) sum += a[k] * b[k];
        wrong += got != sum;
    }
    return wrong;
}

// Why a rung cannot run here, or nothing.
std::string obstacle(const Rung& rung, const Product& p, const Chip& chip) {
    if (rung.hopper_only && chip.capability() != 90)
        return "needs compute capability 9.0 (Hopper), this chip has " + std::to_string(chip.properties.major) + "." +
               std::to_string(chip.properties.minor);
    if (p.m % rung.tile_m || p.n % rung.tile_n || p.k % rung.tile_k)
        return "its tile is " + std::to_string(rung.tile_m) + " x " + std::to_string(rung.tile_n) + " x " + std::to_string(rung.tile_k) +
               " (M, N, K), and the sizes are not multiples of it";
    return {};
}

struct Size {
    int m = 4096, n = 4096, k = 4096;
};

Size read_arguments(int count, char** arguments) {
    Size size;
    if (count == 1) return size;
    if (count != 5 || std::strcmp(arguments[1], "--size") != 0) std::fprintf(stderr, "usage: ladder [--size M N K]\n"), std::exit(2);
    int* const sizes[] = {&size.m, &size.n, &size.k};
    // Beyond K = 131071 the sum of the largest products no longer fits into an int32.
    const int most[] = {1 << 20, 1 << 20, 131071};
    for (int i = 0; i < 3; ++i) {
        *sizes[i] = std::atoi(arguments[2 + i]);
        if (*sizes[i] < 1 || *sizes[i] > most[i])
            std::fprintf(stderr, "--size: %c = %s is not in 1 .. %d\n", "MNK"[i], arguments[2 + i], most[i]), std::exit(2);
    }
    return size;
}

std::string text(const char* format, double value) {
    char written[32];
    std::snprintf(written, sizeof written, format, value);
    return written;
}

void print_heading(const Product& p, size_t sets, const Chip& chip) {
    std::printf("C[%d, %d] = A[%d, %d] B[%d, %d]^T in int8, sums in int32, %zu sets of matrices in turn\n", p.m, p.n, p.m, p.k, p.n, p.k,
                sets);
    std::printf("%s: %d multiprocessors, up to %.0f MHz", chip.properties.name, chip.properties.multiProcessorCount, chip.clock_khz / 1e3);
    if (chip.peak_tops() > 0) std::printf(", which is %.0f TOPS for its tensor cores", chip.peak_tops());
    std::printf("\n\n| %-21s | %9s | %6s | %15s | %7s |\n", "rung", "time", "TOPS", "x the one below", "of peak");
    std::printf("| --- | ---: | ---: | ---: | ---: |\n");
}

void print_row(const std::string& name, const Product& p, double milliseconds, double below, double peak) {
    const double tops = 2.0 * p.m * p.n * p.k / (milliseconds * 1e-3) / 1e12, faster = below / milliseconds;
    const std::string time = milliseconds < 1 ? text("%.1f us", milliseconds * 1e3) : text("%.2f ms", milliseconds);
    const std::string rate = text(tops < 10 ? "%.2f" : tops < 100 ? "%.1f" : "%.0f", tops);
    const std::string factor = below > 0 ? text(faster < 10 ? "%.2f" : "%.1f", faster) : "";
    const std::string share = peak > 0 ? text("%.1f %%", 100 * tops / peak) : "";
    std::printf("| %-21s | %9s | %6s | %15s | %7s |\n", name.c_str(), time.c_str(), rate.c_str(), factor.c_str(), share.c_str());
    std::fflush(stdout);
}

int run(const Size& size) {
    const Chip chip;
    if (chip.capability() < 80) {
        std::printf("skipped: compute capability 8.0 or newer is needed, this chip has %d.%d\n", chip.properties.major,
                    chip.properties.minor);
        return 0;
    }
    Products products(size.m, size.n, size.k, size_t(chip.properties.l2CacheSize));
    const Product& p = products.first();
    if (const std::string why = obstacle(rungs[0], p, chip); !why.empty()) {
        std::fprintf(stderr, "rung 1, which the others are compared with: %s\n", why.c_str());
        return 2;
    }
    auto* expected = allocate<int32_t>(size_t(p.m) * p.n);
    rungs[0].launch({p.a, p.b, expected, p.m, p.n, p.k});
    check(cudaDeviceSynchronize(), rungs[0].name);
    constexpr int places = 256;
    if (const int found = compare_with_cpu(p, expected, places); found > 0) {
        std::printf("WRONG: rung 1 differs from the CPU in %d of %d numbers\n", found, places);
        return 1;
    }

    print_heading(p, products.count(), chip);
    std::vector<std::string> notes;
    bool wrong = false;
    double below = 0;
    for (size_t i = 0; i < std::size(rungs); ++i) {
        const std::string name = std::to_string(i + 1) + " " + rungs[i].name;
        if (const std::string why = obstacle(rungs[i], p, chip); !why.empty()) {
            notes.push_back(name + " was left out: " + why + ".");
            continue;
        }
        // Before the time is taken, and after: a race may show in the second only.
        unsigned long long found = differences(rungs[i], p, expected);
        const double milliseconds = time_rung(rungs[i], products);
        found += differences(rungs[i], p, expected);
        if (found > 0) {
            notes.push_back("WRONG: " + name + " differs from rung 1 in " + std::to_string(found) + " numbers of two runs");
            wrong = true;
        }
        print_row(name, p, milliseconds, below, chip.peak_tops());
        below = milliseconds;
    }
    std::printf("\n");
    for (const std::string& note : notes) std::printf("%s\n", note.c_str());
    if (!wrong) std::printf("Every rung above gives the bits of rung 1, and rung 1 those of the CPU in %d places.\n", places);
    return wrong;
}

}  // namespace

int main(int count, char** arguments) {
    const Size size = read_arguments(count, arguments);
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::printf("skipped: no CUDA device\n");
        return 0;
    }
    return run(size);
}
