#include "tensors.hpp"

#include <torch/csrc/stable/ops.h>

#include <stdexcept>

namespace lowbit_torch {
namespace {

using torch::headeronly::ScalarType;

constexpr auto e8m0_dtype = int32_t(ScalarType::Float8_e8m0fnu);  // the shim has a name for it only since torch 2.11

std::string name(const Place& place) { return place.device == LOWBIT_CUDA ? "cuda:" + std::to_string(place.index) : std::string("cpu"); }

// The one stride that walks over all rows, or nothing when the leading sizes do not lie evenly.
std::optional<int64_t> row_stride(const Tensor& tensor) {
    std::optional<int64_t> stride;
    int64_t rows = 1;
    for (int64_t i = tensor.dim() - 2; i >= 0; --i) {
        if (tensor.size(i) == 1) continue;
        if (!stride) stride = tensor.stride(i);
        if (tensor.stride(i) != *stride * rows) return std::nullopt;
        rows *= tensor.size(i);
    }
    return stride.value_or(tensor.size(tensor.dim() - 1));  // one row: any stride will do
}

}  // namespace

void refuse(const std::string& text) { throw std::invalid_argument(text); }

void check(lowbit_status status) {
    if (status == LOWBIT_OK) return;
    if (status == LOWBIT_INVALID_ARGUMENT) refuse(lowbit_last_error());
    throw std::runtime_error(lowbit_last_error());
}

Place place_of(const Tensor& tensor) {
    if (tensor.is_cpu()) return {};
    if (tensor.is_cuda()) return {LOWBIT_CUDA, tensor.get_device_index()};
    refuse("lowbit works on CPU and CUDA tensors; this one is on another device");
}

void require_place(const char* verb, const char* argument, const Tensor& tensor, const Place& place, const char* place_argument) {
    const Place found = place_of(tensor);
    if (found == place) return;
    refuse(std::string(verb) + ": " + argument + " is on " + name(found) + " but " + place_argument + " is on " + name(place) +
           "; move one of them");
}

int32_t dtype_of(const Tensor& tensor) {
    int32_t dtype = 0;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &dtype));
    return dtype;
}

lowbit_element element_of_dtype(const char* verb, const char* argument, int32_t dtype) {
    if (dtype == aoti_torch_dtype_float32()) return LOWBIT_FP32;
    if (dtype == aoti_torch_dtype_float16()) return LOWBIT_FP16;
    if (dtype == aoti_torch_dtype_bfloat16()) return LOWBIT_BF16;
    if (dtype == aoti_torch_dtype_int32()) return LOWBIT_INT32;
    if (dtype == aoti_torch_dtype_int8()) return LOWBIT_INT8;
    if (dtype == aoti_torch_dtype_float8_e4m3fn()) return LOWBIT_FP8_E4M3;
    if (dtype == aoti_torch_dtype_float8_e5m2()) return LOWBIT_FP8_E5M2;
    refuse(std::string(verb) + ": " + argument + " has a dtype that lowbit does not take; use float32, float16, bfloat16, int8 or int32");
}

int32_t dtype_of_codes(lowbit_element element) {
    switch (element) {
    case LOWBIT_INT8: return aoti_torch_dtype_int8();
    case LOWBIT_FP8_E4M3: return aoti_torch_dtype_float8_e4m3fn();
    case LOWBIT_FP8_E5M2: return aoti_torch_dtype_float8_e5m2();
    default: return aoti_torch_dtype_uint8();
    }
}

int32_t dtype_of_scales(lowbit_element element) {
    switch (element) {
    case LOWBIT_FP16: return aoti_torch_dtype_float16();
    case LOWBIT_BF16: return aoti_torch_dtype_bfloat16();
    case LOWBIT_E8M0: return e8m0_dtype;
    case LOWBIT_FP8_E4M3: return aoti_torch_dtype_float8_e4m3fn();
    default: return aoti_torch_dtype_float32();
    }
}

Tensor allocate(const std::vector<int64_t>& sizes, int32_t dtype, const Place& place) {
    std::vector<int64_t> strides(sizes.size(), 1);
    for (size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * (sizes[i] > 0 ? sizes[i] : 1);
    return allocate(sizes, strides, dtype, place);
}

Tensor allocate(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, int32_t dtype, const Place& place) {
    const int32_t device = place.device == LOWBIT_CUDA ? aoti_torch_device_type_cuda() : aoti_torch_device_type_cpu();
    AtenTensorHandle made = nullptr;
    TORCH_ERROR_CODE_CHECK(
        aoti_torch_empty_strided(int64_t(sizes.size()), sizes.data(), strides.data(), dtype, device, place.index, &made));
    return Tensor(made);
}

Matrix as_matrix(const char* verb, const char* argument, const Tensor& tensor) {
    const int64_t rank = tensor.dim();
    if (rank == 0) refuse(std::string(verb) + ": " + argument + " is a single number; use a tensor with at least one dimension");
    std::optional<int64_t> stride = row_stride(tensor);
    Matrix matrix{stride ? tensor : torch::stable::contiguous(tensor), LOWBIT_TENSOR_INIT};
    lowbit_tensor& view = matrix.view;
    view.data = matrix.held.data_ptr();
    view.element = element_of_dtype(verb, argument, dtype_of(tensor));
    view.shape[0] = 1;
    for (int64_t i = 0; i + 1 < rank; ++i) view.shape[0] *= tensor.size(i);
    view.shape[1] = tensor.size(rank - 1);
    view.strides[0] = stride.value_or(view.shape[1]);
    view.strides[1] = stride ? tensor.stride(rank - 1) : 1;
    const Place place = place_of(tensor);
    view.device = place.device;
    view.device_index = place.index;
    return matrix;
}

lowbit_tensor as_vector(const char* verb, const char* argument, const Tensor& tensor) {
    if (tensor.dim() != 1) refuse(std::string(verb) + ": " + argument + " has " + std::to_string(tensor.dim()) + " dimensions; use one");
    const Place place = place_of(tensor);
    lowbit_tensor view = LOWBIT_TENSOR_INIT;
    view.data = tensor.data_ptr();
    view.element = element_of_dtype(verb, argument, dtype_of(tensor));
    view.rank = 1;
    view.shape[0] = tensor.size(0);
    view.strides[0] = tensor.stride(0);
    view.device = place.device;
    view.device_index = place.index;
    return view;
}

std::vector<int64_t> with_last_size(const Tensor& tensor, int64_t size) {
    const auto sizes = tensor.sizes();
    std::vector<int64_t> result(sizes.begin(), sizes.end());
    result.back() = size;
    return result;
}

}  // namespace lowbit_torch
