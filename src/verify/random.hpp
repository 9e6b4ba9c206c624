// Numbers to test on: the same on every machine for the same seed.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

namespace lowbit::verify {

class Random {
public:
    explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}

    uint64_t bits() {  // splitmix64
        uint64_t z = state_ += 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        return z ^ z >> 31;
    }
    double uniform() { return double(bits() >> 11) * 0x1p-53; }
    float normal() { return float(std::sqrt(-2 * std::log(1 - uniform())) * std::cos(6.283185307179586 * uniform())); }
    int64_t below(int64_t limit) { return int64_t(bits() % uint64_t(limit)); }

private:
    uint64_t state_;
};

// Normal values; now and then an outlier, as real weights have.
inline std::vector<float> normal_values(int64_t count, uint64_t seed) {
    Random random(seed);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = random.normal() * (random.below(200) == 0 ? 10.0f : 1.0f);
    return values;
}

}  // namespace lowbit::verify
