// How the K types choose the scale of one sub-block: searches over a few roundings for the one whose best scale leaves the smallest
// weighted error. For ggml_super.hpp only. The order of the sums, and the rounding of each product in them, is part of
// the format.
#pragma once
#include "reference/ggml_layout.hpp"

namespace lowbit::reference::ggml {

namespace search {

constexpr float nothing = 1e-15f;
constexpr int most_values = 32;

// With integers l for the values x, each value weighing as its square, the best scale is correlation / energy, and it leaves the smaller
// an error the larger correlation^2 / energy is.
struct Fit {
    float correlation = 0, energy = 0;

    LOWBIT_HOST_DEVICE void add(float x, int rounded) {
        const float weight = x * x, l = float(rounded);
        correlation += core::product(weight * x, l);
        energy += core::product(weight * l, l);
    }
    LOWBIT_HOST_DEVICE void remove(float x, int rounded) {
        const float weight = x * x, l = float(rounded);
        correlation -= core::product(weight * x, l);
        energy -= core::product(weight * l, l);
    }
    LOWBIT_HOST_DEVICE float scale() const { return energy == 0.0f ? 0.0f : correlation / energy; }
};

LOWBIT_HOST_DEVICE inline Fit fit_rounded(const float* x, int count, int levels, float inverse, int* rounded) {
    Fit fit;
    for (int i = 0; i < count; ++i) {
        rounded[i] = round_half_even_between(inverse * x[i], -levels, levels - 1);
        fit.add(x[i], rounded[i]);
    }
    return fit;
}

LOWBIT_HOST_DEVICE inline void store_codes(const int* rounded, int count, int levels, uint8_t* codes) {
    for (int i = 0; i < count; ++i) codes[i] = uint8_t(rounded[i] + levels);
}

// x ~ scale * (code - levels), codes in [0, 2 * levels). Both return the scale; a sub-block with nothing above 1e-15 gets the scale 0 and
// codes of 0.

// Tries 19 scales around the one that makes the value of largest magnitude the lowest code.
LOWBIT_HOST_DEVICE inline float search_symmetric(const float* x, int count, int levels, uint8_t* codes) {
    fill_zero(codes, count);
    const float largest = largest_magnitude(x, count);
    if (std::fabs(largest) < nothing) return 0.0f;

    int rounded[most_values];
    Fit fit = fit_rounded(x, count, levels, float(-levels) / largest, rounded);
    store_codes(rounded, count, levels, codes);
    float scale = fit.scale();
    float best = scale * fit.correlation;
    for (int step = -9; step <= 9; ++step) {
        if (step == 0) continue;
        fit = fit_rounded(x, count, levels, -(float(levels) + core::product(0.1f, float(step))) / largest, rounded);
        if (!(fit.energy > 0 && fit.correlation * fit.correlation > best * fit.energy)) continue;
        store_codes(rounded, count, levels, codes);
        scale = fit.scale();
        best = scale * fit.correlation;
    }
    return scale;
}

// Starts from that same scale, then moves single codes as long as that helps.
LOWBIT_HOST_DEVICE inline float search_symmetric_by_sweeps(const float* x, int count, int levels, uint8_t* codes) {
    fill_zero(codes, count);
    const float largest = largest_magnitude(x, count);
    if (std::fabs(largest) < nothing) return 0.0f;

    int rounded[most_values];
    Fit fit = fit_rounded(x, count, levels, float(-levels) / largest, rounded);
    bool changed = true;
    for (int sweep = 0; sweep < 5 && changed; ++sweep) {
        changed = false;
        for (int i = 0; i < count; ++i) {
            // The others alone say which scale is best; does this value round differently at that scale?
            Fit trial = fit;
            trial.remove(x[i], rounded[i]);
            if (!(trial.correlation > 0)) continue;
            const int moved = round_half_even_between(x[i] * trial.energy / trial.correlation, -levels, levels - 1);
            if (moved == rounded[i]) continue;
            trial.add(x[i], moved);
            const bool better =
                trial.energy > 0 && trial.correlation * trial.correlation * fit.energy > fit.correlation * fit.correlation * trial.energy;
            if (!better) continue;
            rounded[i] = moved;
            fit = trial;
            changed = true;
        }
    }
    store_codes(rounded, count, levels, codes);
    return fit.scale();
}

struct AffineSearch {
    int count;          // values of the sub-block, at most 32
    int highest;        // codes in [0, highest]
    float first_shift;  // the trials divide the range into highest + first_shift + 0.1 k parts,
    int last_step;      // k = 0 .. last_step
    bool absolute;      // weigh |error|, not its square
};

// x ~ scale * code - minimum, minimum >= 0.
struct AffineScale {
    float scale, minimum;
};

struct WeightedSums {
    float l = 0, l2 = 0, xl = 0;
};

LOWBIT_HOST_DEVICE inline WeightedSums round_affine(const float* x, const float* weights, const AffineSearch& search, float inverse,
                                                    float lowest, int* rounded) {
    WeightedSums sums;
    for (int i = 0; i < search.count; ++i) {
        rounded[i] = round_half_even_between(inverse * (x[i] - lowest), 0, search.highest);
        const float l = float(rounded[i]);
        sums.l += core::product(weights[i], l);
        sums.l2 += core::product(weights[i] * l, l);
        sums.xl += core::product(weights[i] * l, x[i]);
    }
    return sums;
}

LOWBIT_HOST_DEVICE inline float weighted_error(const float* x, const float* weights, const AffineSearch& search, float scale, float lowest,
                                               const int* rounded) {
    float error = 0;
    for (int i = 0; i < search.count; ++i) {
        const float difference = core::product(scale, float(rounded[i])) + lowest - x[i];
        error += core::product(weights[i], search.absolute ? std::fabs(difference) : difference * difference);
    }
    return error;
}

LOWBIT_HOST_DEVICE inline AffineScale search_affine(const float* x, const float* weights, const AffineSearch& search, uint8_t* codes) {
    float lowest = x[0], highest = x[0], sum_weights = 0, sum_x = 0;
    for (int i = 0; i < search.count; ++i) {
        if (x[i] < lowest) lowest = x[i];
        if (x[i] > highest) highest = x[i];
        sum_weights += weights[i];
        sum_x += core::product(weights[i], x[i]);
    }
    if (lowest > 0) lowest = 0;
    if (highest == lowest) {
        fill_zero(codes, search.count);
        return {0.0f, -lowest};
    }

    int rounded[most_values];
    const float first_inverse = float(search.highest) / (highest - lowest);
    float scale = 1.0f / first_inverse;
    round_affine(x, weights, search, first_inverse, lowest, rounded);
    store_codes(rounded, search.count, 0, codes);
    float best_error = weighted_error(x, weights, search, scale, lowest, rounded);

    for (int step = 0; step <= search.last_step; ++step) {
        // The range is that of the best fit so far: a fit that is adopted moves where the next trial starts.
        const float inverse = (search.first_shift + core::product(0.1f, float(step)) + float(search.highest)) / (highest - lowest);
        const WeightedSums sums = round_affine(x, weights, search, inverse, lowest, rounded);
        const float determinant = core::product(sum_weights, sums.l2) - core::product(sums.l, sums.l);
        if (!(determinant > 0)) continue;
        // Weighted least squares for scale and lowest together; lowest above zero cannot be stored, then it is zero.
        float trial_scale = (core::product(sum_weights, sums.xl) - core::product(sum_x, sums.l)) / determinant;
        float trial_lowest = (core::product(sums.l2, sum_x) - core::product(sums.l, sums.xl)) / determinant;
        if (trial_lowest > 0) {
            trial_lowest = 0;
            trial_scale = sums.xl / sums.l2;
        }
        const float error = weighted_error(x, weights, search, trial_scale, trial_lowest, rounded);
        if (!(error < best_error)) continue;
        store_codes(rounded, search.count, 0, codes);
        best_error = error;
        scale = trial_scale;
        lowest = trial_lowest;
    }
    return {scale, -lowest};
}

}  // namespace search

}  // namespace lowbit::reference::ggml
