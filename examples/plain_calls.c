/* The calls without handles: an int8 product, raw and scaled; bf16 numbers, C = alpha A B + beta C; GGML blocks. */
#include <lowbit/lowbit.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    const int8_t a[2 * 3] = {1, 2, 3, -4, 5, -6};    /* [2, 3] */
    const int8_t b[3 * 2] = {7, -8, 9, 10, -11, 12}; /* [3, 2] */
    int32_t raw[2 * 2];
    float scaled[2 * 2];
    lowbit_context* context = NULL;
    if (lowbit_context_create_cpu(&context) != LOWBIT_OK) return EXIT_FAILURE;
    if (lowbit_int8_matmul(context, a, b, raw, LOWBIT_INT32, 2, 2, 3, 1, 1, 1) != LOWBIT_OK ||
        lowbit_int8_matmul(context, a, b, scaled, LOWBIT_FP32, 2, 2, 3, 0.5f, 0.5f, 1) != LOWBIT_OK) {
        fprintf(stderr, "%s\n", lowbit_last_error());
        return EXIT_FAILURE;
    }
    printf("raw    %d %d %d %d\n", raw[0], raw[1], raw[2], raw[3]);
    printf("scaled %g %g %g %g\n", (double)scaled[0], (double)scaled[1], (double)scaled[2], (double)scaled[3]);

    /* fp32 -> bf16, then sums = 2 A B - sums in fp32; B as [K, N]. */
    float numbers[2 * 2] = {1, 2, 3, 4}, sums[2 * 2] = {1, 1, 1, 1};
    uint16_t narrow[2 * 2];
    const lowbit_tensor wide = lowbit_matrix(numbers, LOWBIT_FP32, 2, 2), same = lowbit_matrix(narrow, LOWBIT_BF16, 2, 2);
    if (lowbit_convert(context, &wide, &same) != LOWBIT_OK ||
        lowbit_gemm(context, 2, 2, 2, 2.0f, narrow, LOWBIT_BF16, 2, narrow, LOWBIT_BF16, 2, 0, -1.0f, sums, LOWBIT_FP32, 2) != LOWBIT_OK) {
        fprintf(stderr, "%s\n", lowbit_last_error());
        return EXIT_FAILURE;
    }
    printf("bf16   %g %g %g %g\n", (double)sums[0], (double)sums[1], (double)sums[2], (double)sums[3]);
    if (sums[0] != 13 || sums[1] != 19 || sums[2] != 29 || sums[3] != 43) return EXIT_FAILURE;

    float x[64], back[64];
    unsigned char blocks[2 * 18];
    for (int i = 0; i < 64; ++i) x[i] = (float)(i - 32) / 8.0f;
    if (lowbit_quantize_q4_0(context, x, blocks, 1, 64) != LOWBIT_OK || lowbit_dequantize_q4_0(context, blocks, back, 1, 64) != LOWBIT_OK) {
        fprintf(stderr, "%s\n", lowbit_last_error());
        return EXIT_FAILURE;
    }
    printf("q4_0   %g -> %g\n", (double)x[0], (double)back[0]);
    lowbit_context_destroy(context);
    return raw[0] == -8 && raw[1] == 48 && raw[2] == 83 && raw[3] == 10 && scaled[0] == -2.0f ? EXIT_SUCCESS : EXIT_FAILURE;
}
