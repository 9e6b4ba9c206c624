/* lowbit: matrices in 1 to 16 bits, and their products. The C interface.
 *
 * Rules for all calls:
 *  - A call returns LOWBIT_OK, or a status; lowbit_last_error() then gives a sentence that names the argument, its value and what is
 *    accepted. A call that fails has written nothing to the caller's memory.
 *  - A struct that callers fill carries its own size in `size`; start from its LOWBIT_..._INIT, so that new fields never break old callers.
 *  - Handles are made by a _create or by a verb and given back with the matching _destroy; destroying NULL does nothing.
 *  - Nothing is global: two contexts never share state. One context may be used from several threads at a time.
 */
#ifndef LOWBIT_LOWBIT_H
#define LOWBIT_LOWBIT_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32) || !defined(__GNUC__)
#define LOWBIT_API
#else
#define LOWBIT_API __attribute__((visibility("default")))
#endif

#define LOWBIT_VERSION_MAJOR 0
#define LOWBIT_VERSION_MINOR 1
#define LOWBIT_VERSION_PATCH 0
#define LOWBIT_VERSION_STRING "0.1.0"

/* A caller may hand over any number where an enumeration is expected: C++ too shall read it as a number, and refuse it. */
#ifdef __cplusplus
#define LOWBIT_ANY_INT32 : int32_t
extern "C" {
#else
#define LOWBIT_ANY_INT32
#endif

/* ---- status ---- */

typedef enum lowbit_status LOWBIT_ANY_INT32 {
    LOWBIT_OK = 0,
    LOWBIT_INVALID_ARGUMENT = 1, /* the call is wrong: fix the argument the text names */
    LOWBIT_UNSUPPORTED = 2,      /* the call is right, but nothing here can do it: the text says why */
    LOWBIT_OUT_OF_MEMORY = 3,
    LOWBIT_DEVICE_ERROR = 4, /* the CUDA driver or runtime refused */
    LOWBIT_IO_ERROR = 5,     /* a file could not be read or written, or is not what it says */
    LOWBIT_INTERNAL_ERROR = 6
} lowbit_status;

LOWBIT_API const char* lowbit_version(void);
LOWBIT_API const char* lowbit_status_string(lowbit_status status);
/* The text of the last failure on this thread; "" before the first. Valid until the next failing call on this thread. */
LOWBIT_API const char* lowbit_last_error(void);

/* ---- formats ---- */

typedef enum lowbit_element LOWBIT_ANY_INT32 {
    LOWBIT_FP32 = 0,
    LOWBIT_FP16 = 1,
    LOWBIT_BF16 = 2,
    LOWBIT_INT32 = 3, /* raw products only */
    LOWBIT_INT8 = 4,
    LOWBIT_UINT8 = 5,
    LOWBIT_INT4 = 6,
    LOWBIT_UINT4 = 7,
    LOWBIT_INT1 = 8,
    LOWBIT_FP8_E4M3 = 9,
    LOWBIT_FP8_E5M2 = 10,
    LOWBIT_FP4_E2M1 = 11,
    LOWBIT_NF4 = 12,
    LOWBIT_E8M0 = 13, /* scales only */
    LOWBIT_Q4_0 = 32,
    LOWBIT_Q4_1 = 33,
    LOWBIT_Q5_0 = 34,
    LOWBIT_Q5_1 = 35,
    LOWBIT_Q8_0 = 36,
    LOWBIT_Q8_1 = 37,
    LOWBIT_Q2_K = 38,
    LOWBIT_Q3_K = 39,
    LOWBIT_Q4_K = 40,
    LOWBIT_Q5_K = 41,
    LOWBIT_Q6_K = 42,
    LOWBIT_IQ4_NL = 43
} lowbit_element;

typedef enum lowbit_granularity LOWBIT_ANY_INT32 {
    LOWBIT_SCALE_NONE = 0,
    LOWBIT_SCALE_TENSOR = 1,
    LOWBIT_SCALE_ROW = 2,
    LOWBIT_SCALE_GROUP = 3,
    LOWBIT_SCALE_BLOCK = 4
} lowbit_granularity;

/* How numbers are stored. Made by lowbit_format_parse from a string such as "int4:g128"; docs/formats.md has the grammar. */
typedef struct lowbit_format {
    lowbit_element element;
    lowbit_granularity granularity;
    lowbit_element scale;  /* type of the scales: fp32, fp16, bf16, e8m0, or e4m3 under an fp32 scale of the whole tensor */
    int32_t asymmetric;    /* 1: a zero point beside every scale */
    int64_t group_columns; /* group and block: values along K that share a scale */
    int64_t group_rows;    /* block: rows that share a scale */
} lowbit_format;

/* The planes of a rows x columns matrix in a format: what each takes in bytes. */
typedef struct lowbit_format_sizes {
    size_t size;
    double bits_per_weight; /* of this shape, everything counted */
    int64_t row_bytes;      /* codes of one row */
    int64_t code_bytes;     /* rows * row_bytes */
    int64_t scale_rows;     /* the scales form a scale_rows x scale_columns matrix; 0 x 0 where a format has none */
    int64_t scale_columns;
    int64_t scale_bytes;
    int64_t zero_point_bytes;   /* one byte each, as many as scales; 0 where a format has none */
    int64_t tensor_scale_bytes; /* 4 where a format has one */
    int64_t total_bytes;
} lowbit_format_sizes;
#define LOWBIT_FORMAT_SIZES_INIT \
    { sizeof(lowbit_format_sizes), 0, 0, 0, 0, 0, 0, 0, 0, 0 }

LOWBIT_API lowbit_status lowbit_format_parse(const char* text, lowbit_format* format);
/* Writes the format's name and a final 0 into text[0 .. capacity); 64 bytes are enough for every format. */
LOWBIT_API lowbit_status lowbit_format_print(const lowbit_format* format, char* text, size_t capacity);
LOWBIT_API lowbit_status lowbit_format_measure(const lowbit_format* format, int64_t rows, int64_t columns, lowbit_format_sizes* sizes);

/* ---- tensors ---- */

typedef enum lowbit_device LOWBIT_ANY_INT32 { LOWBIT_CPU = 0, LOWBIT_CUDA = 1 } lowbit_device;

/* A view: it owns nothing. Strides count elements; rank is 1 or 2. */
typedef struct lowbit_tensor {
    size_t size;
    void* data;
    lowbit_element element; /* fp32, fp16, bf16, int32 or int8; fp8_e4m3 and fp8_e5m2 in lowbit_convert alone */
    int32_t rank;
    int64_t shape[2];
    int64_t strides[2];
    lowbit_device device;
    int32_t device_index;
} lowbit_tensor;
#define LOWBIT_TENSOR_INIT \
    { sizeof(lowbit_tensor), NULL, LOWBIT_FP32, 2, {0, 0}, {0, 0}, LOWBIT_CPU, 0 }

/* Contiguous views of CPU memory. */
LOWBIT_API lowbit_tensor lowbit_matrix(void* data, lowbit_element element, int64_t rows, int64_t columns);
LOWBIT_API lowbit_tensor lowbit_vector(void* data, lowbit_element element, int64_t length);

/* ---- context ---- */

typedef struct lowbit_context lowbit_context;

/* Where memory of owning handles comes from. Both functions are needed; alignment is a power of two. */
typedef struct lowbit_allocator {
    size_t size;
    void* (*allocate)(void* user, size_t bytes, size_t alignment); /* NULL: out of memory */
    void (*release)(void* user, void* memory, size_t bytes);
    void* user;
} lowbit_allocator;

LOWBIT_API lowbit_status lowbit_context_create_cpu(lowbit_context** context);
/* stream: a cudaStream_t, or NULL for the default stream. LOWBIT_UNSUPPORTED where the library was built without CUDA or finds no device.
 */
LOWBIT_API lowbit_status lowbit_context_create_cuda(int32_t device_index, void* stream, lowbit_context** context);
LOWBIT_API void lowbit_context_destroy(lowbit_context* context);
/* 0: as many threads as the process may run on (the default). */
LOWBIT_API lowbit_status lowbit_context_set_threads(lowbit_context* context, int32_t threads);
LOWBIT_API lowbit_status lowbit_context_get_threads(const lowbit_context* context, int32_t* threads);
/* Forces the kernel of this name in every verb that has it; NULL or "": choose. LOWBIT_KERNEL in the environment does the same. */
LOWBIT_API lowbit_status lowbit_context_set_kernel(lowbit_context* context, const char* name);
/* A CUDA context's stream for the calls that follow. Not while another thread uses the context. */
LOWBIT_API lowbit_status lowbit_context_set_stream(lowbit_context* context, void* stream);
/* 1: a product of few tokens may begin before the kernel in front of it in the stream has ended (programmatic dependent launch), and reads
 * its weight while that one finishes; tokens, bias, scales and results wait for it as always, so results are the same bits. 0: it does not
 * (the default). The caller promises that weights are ready: between the last kernel of the stream that writes a weight and the product
 * that reads it stands a synchronization, or a kernel that was launched without this option. Graphs record it with the launches. It
 * changes nothing for kernels and devices that cannot do it, nor on a CPU. Not while another thread uses the context. */
LOWBIT_API lowbit_status lowbit_context_set_dependent_launch(lowbit_context* context, int32_t enabled);
LOWBIT_API lowbit_status lowbit_context_get_dependent_launch(const lowbit_context* context, int32_t* enabled);
/* Memory of the context's device for calls to work in: the caller's, aligned to 256 bytes, free for other uses once the stream has passed
 * the call. lowbit_matmul_workspace, lowbit_quantize_workspace and lowbit_binary_conv2d_workspace say how much a call takes; a CPU context
 * takes none. Calls that run at the same time (other streams, other threads) need contexts and workspaces of their own. */
LOWBIT_API lowbit_status lowbit_context_set_workspace(lowbit_context* context, void* memory, size_t bytes);
/* Must outlive every handle made with the context. Not while another thread uses the context. */
LOWBIT_API lowbit_status lowbit_context_set_allocator(lowbit_context* context, const lowbit_allocator* allocator);

/* ---- quantized matrices ---- */

/* Codes, scales and zero points in the plain layout of docs/formats.md. A view: it owns nothing. */
typedef struct lowbit_quantized_view {
    size_t size;
    lowbit_format format;
    int64_t rows;
    int64_t columns;
    void* codes;
    void* scales;         /* NULL where the format has none */
    uint8_t* zero_points; /* NULL where the format has none */
    float* tensor_scale;  /* NULL where the format has none */
    lowbit_device device;
    int32_t device_index;
} lowbit_quantized_view;
#define LOWBIT_QUANTIZED_VIEW_INIT \
    { sizeof(lowbit_quantized_view), {LOWBIT_FP32, LOWBIT_SCALE_NONE, LOWBIT_FP32, 0, 0, 0}, 0, 0, NULL, NULL, NULL, NULL, LOWBIT_CPU, 0 }

typedef struct lowbit_quantized lowbit_quantized;

typedef struct lowbit_quantize_args {
    size_t size;
    lowbit_tensor x;    /* rows x columns: fp32, fp16 or bf16, any strides */
    const char* format; /* "int4:g128" */
    /* Static scales: with scales given, they are used as they are (together with zero_points and tensor_scale where the format has them);
       with NULL they are computed from x. In the layout and type of the format's own planes. */
    const void* scales;
    const uint8_t* zero_points;
    const float* tensor_scale;
} lowbit_quantize_args;
#define LOWBIT_QUANTIZE_ARGS_INIT \
    { sizeof(lowbit_quantize_args), LOWBIT_TENSOR_INIT, NULL, NULL, NULL, NULL }

LOWBIT_API lowbit_status lowbit_quantize(lowbit_context* context, const lowbit_quantize_args* args, lowbit_quantized** result);
/* Writes into the planes of `destination`, whose format and shape must be those of the arguments. */
LOWBIT_API lowbit_status lowbit_quantize_into(lowbit_context* context, const lowbit_quantize_args* args,
                                              const lowbit_quantized_view* destination);
/* The workspace that quantizing these arguments takes. */
LOWBIT_API lowbit_status lowbit_quantize_workspace(lowbit_context* context, const lowbit_quantize_args* args, size_t* bytes);
/* A handle over memory that stays the caller's and must outlive the handle. */
LOWBIT_API lowbit_status lowbit_quantized_borrow(const lowbit_quantized_view* view, lowbit_quantized** result);
LOWBIT_API lowbit_status lowbit_quantized_get_view(const lowbit_quantized* quantized, lowbit_quantized_view* view);
LOWBIT_API void lowbit_quantized_destroy(lowbit_quantized* quantized);

/* y: rows x columns: fp32, fp16 or bf16, any strides. */
LOWBIT_API lowbit_status lowbit_dequantize(lowbit_context* context, const lowbit_quantized* quantized, const lowbit_tensor* y);

/* y = x, number by number: fp32, fp16, bf16, fp8_e4m3 and fp8_e5m2 into each other, any strides, y apart from x. Rounded once, half to
 * even. Beyond the largest number fp32, fp16 and bf16 become infinity, fp8 (infinity too) its largest number; NaN stays NaN. */
LOWBIT_API lowbit_status lowbit_convert(lowbit_context* context, const lowbit_tensor* x, const lowbit_tensor* y);

/* ---- packed weights ---- */

typedef struct lowbit_packed lowbit_packed;

/* How the planes of a packed weight lie behind its header; docs/architecture.md draws them. */
typedef enum lowbit_packed_layout LOWBIT_ANY_INT32 {
    LOWBIT_PACKED_ROWS = 1, /* the plain planes */
    LOWBIT_PACKED_TILES = 2 /* 4-bit codes in the order of the tensor cores: tiles of 16 rows */
} lowbit_packed_layout;

/* Everything that the header of a packed weight says, so that it need not be read from a GPU. A view: it owns nothing. */
typedef struct lowbit_packed_view {
    size_t size;
    lowbit_format format;
    int64_t rows;
    int64_t columns;
    lowbit_packed_layout layout;
    void* data;
    int64_t bytes;
    lowbit_device device;
    int32_t device_index;
} lowbit_packed_view;
#define LOWBIT_PACKED_VIEW_INIT \
    { sizeof(lowbit_packed_view), {LOWBIT_FP32, LOWBIT_SCALE_NONE, LOWBIT_FP32, 0, 0, 0}, 0, 0, LOWBIT_PACKED_ROWS, NULL, 0, LOWBIT_CPU, 0 }

/* Rearranges a weight once for the kernels of the context's device. */
LOWBIT_API lowbit_status lowbit_pack(lowbit_context* context, const lowbit_quantized* quantized, lowbit_packed** result);
/* The form that writes into memory the caller brings: `bytes` from lowbit_pack_bytes, `memory` aligned to 64 and outliving the handle. */
LOWBIT_API lowbit_status lowbit_pack_bytes(lowbit_context* context, const lowbit_quantized* quantized, int64_t* bytes);
LOWBIT_API lowbit_status lowbit_pack_into(lowbit_context* context, const lowbit_quantized* quantized, void* memory, int64_t bytes,
                                          lowbit_packed** result);
/* A packed weight is one self-describing run of bytes: it may be written to a file, and read back with lowbit_packed_borrow. */
LOWBIT_API lowbit_status lowbit_packed_data(const lowbit_packed* packed, const void** data, int64_t* bytes);
LOWBIT_API lowbit_status lowbit_packed_borrow(const void* data, int64_t bytes, lowbit_packed** result);
LOWBIT_API lowbit_status lowbit_packed_get_view(const lowbit_packed* packed, lowbit_packed_view* view);
/* A handle over a packed weight on any device, taken at its description's word: nothing is read. */
LOWBIT_API lowbit_status lowbit_packed_borrow_view(const lowbit_packed_view* view, lowbit_packed** result);
/* The layout that lowbit_pack gives a format on this context. */
LOWBIT_API lowbit_status lowbit_pack_layout(lowbit_context* context, const lowbit_format* format, lowbit_packed_layout* layout);
/* The inverse of lowbit_pack: writes the planes of `destination`, whose format and shape must be the weight's. */
LOWBIT_API lowbit_status lowbit_unpack(lowbit_context* context, const lowbit_packed* packed, const lowbit_quantized_view* destination);
LOWBIT_API lowbit_status lowbit_packed_describe(const lowbit_packed* packed, lowbit_format* format, int64_t* rows, int64_t* columns);
LOWBIT_API void lowbit_packed_destroy(lowbit_packed* packed);

/* ---- matrix products ---- */

typedef enum lowbit_activation LOWBIT_ANY_INT32 {
    LOWBIT_ACTIVATION_NONE = 0,
    LOWBIT_ACTIVATION_RELU = 1,
    LOWBIT_ACTIVATION_GELU = 2,      /* x/2 (1 + erf(x / sqrt 2)) */
    LOWBIT_ACTIVATION_GELU_TANH = 3, /* the tanh approximation */
    LOWBIT_ACTIVATION_SILU = 4
} lowbit_activation;

/* One side of a product: exactly one pointer is set. */
typedef struct lowbit_operand {
    const lowbit_tensor* tensor; /* fp32, fp16 or bf16; int8 against int8 */
    const lowbit_quantized* quantized;
    const lowbit_packed* packed; /* the weight only */
} lowbit_operand;

/* y[M,N] = activation(scale * row_scale[m] * column_scale[n] * (x[M,K] . weight[N,K]^T) + bias[n]) + beta * y[M,N]
 * The scales of a quantized operand are part of its values and need not be repeated here. The type of y says what is stored: fp32, fp16,
 * bf16; int8: round(result / output_scale), clamped; int32: the raw integer product of the codes (less their zero points), with no scale,
 * bias or activation. A weight that lies as [K,N] is given as a tensor with swapped strides.
 * gate: the weight is two of N rows each, one upon the other (gate and up of a gated layer), and y[M,N] is the product of
 *     activation(what the first N rows give) * (what the last N rows give, without an activation)
 * silu makes it SwiGLU, gelu GeGLU. Both are finished (scales, bias) in fp32; what is stored is rounded once. column_scale and bias have 2N
 * values then.
 * beta: beta times what y holds is added in fp32, before the one rounding; with 0, y is not read. For a y of fp32, fp16 or bf16. */
typedef struct lowbit_matmul_args {
    size_t size;
    lowbit_operand x;
    lowbit_operand weight;
    lowbit_tensor y;
    const lowbit_tensor* bias;         /* one per row of the weight: fp32, fp16 or bf16; NULL: none */
    const lowbit_tensor* row_scale;    /* [M]: fp32; NULL: 1 */
    const lowbit_tensor* column_scale; /* one per row of the weight: fp32; NULL: 1 */
    float scale;                       /* 1 */
    float output_scale;                /* int8 output only */
    lowbit_activation activation;
    int32_t gate;         /* 1: the first half of the weight's rows gates the second; 0: not */
    const char* x_format; /* quantize a plain x to this format on the way ("q8_1", "int8:row"); NULL: use it as it is */
    float beta;           /* 0 */
} lowbit_matmul_args;
#define LOWBIT_MATMUL_ARGS_INIT                                                                                               \
    {                                                                                                                         \
        sizeof(lowbit_matmul_args), {NULL, NULL, NULL}, {NULL, NULL, NULL}, LOWBIT_TENSOR_INIT, NULL, NULL, NULL, 1.0f, 1.0f, \
            LOWBIT_ACTIVATION_NONE, 0, NULL, 0.0f                                                                             \
    }

LOWBIT_API lowbit_status lowbit_matmul(lowbit_context* context, const lowbit_matmul_args* args);
/* The workspace that this product takes. */
LOWBIT_API lowbit_status lowbit_matmul_workspace(lowbit_context* context, const lowbit_matmul_args* args, size_t* bytes);
/* Which kernel lowbit_matmul would run for these arguments, and why the others were passed over. Writes at most `capacity` bytes with the
 * final 0, and the length of the whole text (without it) to *length when that is not NULL. */
LOWBIT_API lowbit_status lowbit_explain(lowbit_context* context, const lowbit_matmul_args* args, char* text, size_t capacity,
                                        size_t* length);

/* ---- binary convolutions ---- */

/* Images [images][channels][height][width]: numbers with any strides, which count elements; or signs as bits (LOWBIT_INT1), whose strides
 * are not read. A sign is -1 below 0, else +1, for 0, -0 and NaN too. Bits are [image][row][column][group][byte]: the channels of a group
 * lie innermost, 8 to a byte, the first in the lowest bit, 1 for -1, and zeros fill up a byte. A view: it owns nothing. */
typedef struct lowbit_images {
    size_t size;
    void* data;
    lowbit_element element; /* fp32, fp16 or bf16; int1: bits; int32: of a result alone */
    int64_t images;
    int64_t channels;
    int64_t height;
    int64_t width;
    int64_t strides[4]; /* of image, channel, row, column */
    lowbit_device device;
    int32_t device_index;
} lowbit_images;
#define LOWBIT_IMAGES_INIT \
    { sizeof(lowbit_images), NULL, LOWBIT_FP32, 0, 0, 0, 0, {0, 0, 0, 0}, LOWBIT_CPU, 0 }

/* y[image, output] = scale[output] * (sign(x[image]) convolved with sign(weight[output])) + bias[output]
 * The sums are exact integers, to which the padding adds nothing. Scale and bias are applied in fp32, rounded after each step; what is
 * stored is rounded once: y is fp32, fp16 or bf16, or int32, which gives the sums themselves and takes neither. */
typedef struct lowbit_binary_conv2d_args {
    size_t size;
    lowbit_images x;            /* numbers, or bits as lowbit_sign_bits makes them with the same groups */
    lowbit_images weight;       /* images: outputs; channels: those of a group; height, width: the kernel. Bits have one group */
    lowbit_images y;            /* any strides */
    const lowbit_tensor* scale; /* one for each output: fp32; NULL: 1 */
    const lowbit_tensor* bias;  /* one for each output: fp32, fp16 or bf16; NULL: none */
    int64_t stride[2];          /* down, across: 1 */
    int64_t padding[4];         /* top, bottom, left, right: 0 */
    int64_t dilation[2];        /* down, across: 1 */
    int64_t groups;             /* 1 */
} lowbit_binary_conv2d_args;
#define LOWBIT_BINARY_CONV2D_ARGS_INIT                                                                                                   \
    {                                                                                                                                    \
        sizeof(lowbit_binary_conv2d_args), LOWBIT_IMAGES_INIT, LOWBIT_IMAGES_INIT, LOWBIT_IMAGES_INIT, NULL, NULL, {1, 1}, {0, 0, 0, 0}, \
            {1, 1}, 1                                                                                                                    \
    }

LOWBIT_API lowbit_status lowbit_binary_conv2d(lowbit_context* context, const lowbit_binary_conv2d_args* args);
/* The workspace that this convolution takes. */
LOWBIT_API lowbit_status lowbit_binary_conv2d_workspace(lowbit_context* context, const lowbit_binary_conv2d_args* args, size_t* bytes);
/* Which kernel lowbit_binary_conv2d would run; as lowbit_explain. */
LOWBIT_API lowbit_status lowbit_binary_conv2d_explain(lowbit_context* context, const lowbit_binary_conv2d_args* args, char* text,
                                                      size_t capacity, size_t* length);
/* The signs of numbers as bits: images * height * width * groups * ceil(channels / groups / 8) bytes, of which `bits` must have room for as
 * many at least. For a weight: outputs as images, and one group. */
LOWBIT_API lowbit_status lowbit_sign_bits(lowbit_context* context, const lowbit_images* x, int64_t groups, void* bits, size_t bytes);

/* ---- plain calls: contiguous matrices on the context's device, no handles ---- */

/* C [M,N] = alpha A [M,K] . B [K,N] + beta C, in rows lda, ldb and ldc numbers apart; transpose_b 1: B is given as [N,K], else 0. Each is
 * fp32, fp16 or bf16; sums are fp32, and C is rounded once. With beta = 0, C is not read. It is lowbit_matmul with scale = alpha, and takes
 * its workspace. */
LOWBIT_API lowbit_status lowbit_gemm(lowbit_context* context, int64_t m, int64_t n, int64_t k, float alpha, const void* a,
                                     lowbit_element type_a, int64_t lda, const void* b, lowbit_element type_b, int64_t ldb,
                                     int32_t transpose_b, float beta, void* c, lowbit_element type_c, int64_t ldc);
/* A [M,K] int8, B [K,N] int8 -> C [M,N]. element int32: the raw product; fp32, fp16, bf16: (A scale_a)(B scale_b) scale_c. */
LOWBIT_API lowbit_status lowbit_int8_matmul(lowbit_context* context, const int8_t* a, const int8_t* b, void* c, lowbit_element element,
                                            int64_t m, int64_t n, int64_t k, float scale_a, float scale_b, float scale_c);
/* A [M, (K+1)/2], B [(K+1)/2, N]: two signed 4-bit values per byte along K, low nibble first; the high nibble past an odd K is ignored. */
LOWBIT_API lowbit_status lowbit_int4_matmul(lowbit_context* context, const uint8_t* a, const uint8_t* b, void* c, lowbit_element element,
                                            int64_t m, int64_t n, int64_t k, float scale_a, float scale_b, float scale_c);
/* x [rows, k] -> q [rows, k/32, 18] and back; q8_1: [rows, k/32, 36]. k is a multiple of 32. */
LOWBIT_API lowbit_status lowbit_quantize_q4_0(lowbit_context* context, const float* x, void* q, int64_t rows, int64_t k);
LOWBIT_API lowbit_status lowbit_quantize_q8_1(lowbit_context* context, const float* x, void* q, int64_t rows, int64_t k);
LOWBIT_API lowbit_status lowbit_dequantize_q4_0(lowbit_context* context, const void* q, float* x, int64_t rows, int64_t k);
/* weight [m, k/32, 18], activation [n, k/32, 36] -> y [m, n] = weight . activation^T (here m counts rows of the weight). */
LOWBIT_API lowbit_status lowbit_gemm_q4_0_q8_1(lowbit_context* context, const void* weight, const void* activation, float* y, int64_t m,
                                               int64_t n, int64_t k);

/* ---- this machine ---- */

/* A JSON text: version, processor features, GPUs, and every kernel with whether it can run here and why not. As lowbit_explain writes. */
LOWBIT_API lowbit_status lowbit_info(char* text, size_t capacity, size_t* length);

#ifdef __cplusplus
}
#endif

#endif
