#include <lowbit/lowbit.h>
#include <stdio.h>
#include <string.h>

/* The identity in 8 bits, and its product with [1, 2]. */
int main(void) {
    const int8_t identity[4] = {1, 0, 0, 1};
    const int8_t vector[2] = {1, 2};
    int32_t product[2] = {0, 0};
    lowbit_context* context = NULL;
    lowbit_status status = lowbit_context_create_cpu(&context);
    if (status == LOWBIT_OK) status = lowbit_int8_matmul(context, vector, identity, product, LOWBIT_INT32, 1, 2, 2, 1.0f, 1.0f, 1.0f);
    lowbit_context_destroy(context);
    if (status != LOWBIT_OK) {
        fprintf(stderr, "%s\n", lowbit_last_error());
        return 1;
    }
    printf("lowbit %s: %d %d\n", lowbit_version(), (int)product[0], (int)product[1]);
    return product[0] == 1 && product[1] == 2 && strcmp(lowbit_version(), LOWBIT_VERSION_STRING) == 0 ? 0 : 1;
}
