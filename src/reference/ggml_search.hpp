// How the K types choose the scale of one sub-block: searches over a few roundings for the one whose best scale leaves the smallest
// weighted error. For src/reference only.
#pragma once
#include <cstdint>

namespace lowbit::reference::ggml {

// x ~ scale * (code - levels), codes in [0, 2 * levels). Both return the scale; a sub-block with nothing above 1e-15 gets the scale 0 and
// codes of 0.

// Tries 19 scales around the one that makes the value of largest magnitude the lowest code.
float search_symmetric(const float* x, int count, int levels, uint8_t* codes);

// Starts from that same scale, then moves single codes as long as that helps.
float search_symmetric_by_sweeps(const float* x, int count, int levels, uint8_t* codes);

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
AffineScale search_affine(const float* x, const float* weights, const AffineSearch& search, uint8_t* codes);

}  // namespace lowbit::reference::ggml
