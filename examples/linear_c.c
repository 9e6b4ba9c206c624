/* The same in C: a weight in q4_0 blocks, tokens in fp32, and what an error says. */
#include <lowbit/lowbit.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                       \
    do {                                                  \
        if ((call) != LOWBIT_OK) {                        \
            fprintf(stderr, "%s\n", lowbit_last_error()); \
            return EXIT_FAILURE;                          \
        }                                                 \
    } while (0)

enum { OUTPUTS = 64, INPUTS = 256, TOKENS = 2 };

static float w[OUTPUTS * INPUTS], x[TOKENS * INPUTS], y[TOKENS * OUTPUTS];

int main(void) {
    for (int i = 0; i < OUTPUTS * INPUTS; ++i) w[i] = (float)(i * 7919 % 1009 - 504) / 504.0f;
    for (int i = 0; i < TOKENS * INPUTS; ++i) x[i] = (float)(i * 104729 % 1013 - 506) / 506.0f;

    lowbit_context* context = NULL;
    CHECK(lowbit_context_create_cpu(&context));

    lowbit_quantize_args quantize = LOWBIT_QUANTIZE_ARGS_INIT;
    quantize.x = lowbit_matrix(w, LOWBIT_FP32, OUTPUTS, INPUTS);
    quantize.format = "q4_0";
    lowbit_quantized* weight = NULL;
    CHECK(lowbit_quantize(context, &quantize, &weight));

    lowbit_tensor tokens = lowbit_matrix(x, LOWBIT_FP32, TOKENS, INPUTS);
    lowbit_matmul_args args = LOWBIT_MATMUL_ARGS_INIT;
    args.x.tensor = &tokens;
    args.weight.quantized = weight;
    args.y = lowbit_matrix(y, LOWBIT_FP32, TOKENS, OUTPUTS);
    args.x_format = "q8_1"; /* tokens are quantized on the way: an integer product */
    CHECK(lowbit_matmul(context, &args));
    printf("y[0][0] = %g\n", (double)y[0]);

    tokens.shape[1] = INPUTS - 1; /* a mistake, to see what one reads like */
    if (lowbit_matmul(context, &args) == LOWBIT_OK) return EXIT_FAILURE;
    printf("%s: %s\n", lowbit_status_string(LOWBIT_INVALID_ARGUMENT), lowbit_last_error());

    lowbit_quantized_destroy(weight);
    lowbit_context_destroy(context);
    return EXIT_SUCCESS;
}
