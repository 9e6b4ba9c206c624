// The arguments and results of a boxed op, as the stable ABI hands them over: 64-bit values that own what they point to.
#pragma once
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lowbit_torch {

using Tensor = torch::stable::Tensor;

// Arguments are taken in the order of the schema, each once, and all before the first failure (what is not taken is not freed) and the
// first result.
class Stack {
public:
    explicit Stack(StableIValue* values) : values_(values) {}

    Tensor tensor() { return take<Tensor>(); }
    std::optional<Tensor> optional_tensor() { return take<std::optional<Tensor>>(); }
    int64_t integer() { return take<int64_t>(); }
    std::vector<int64_t> integers() { return take<std::vector<int64_t>>(); }
    double number() { return take<double>(); }
    bool truth() { return take<bool>(); }
    // As torch numbers its types: the translation to the headers' own enumeration knows fewer of them.
    int32_t dtype() { return take<int32_t>(); }
    std::optional<int32_t> optional_dtype() { return take<std::optional<int32_t>>(); }

    // Not through to<std::string>, which in torch 2.11 leaks a string at every call.
    std::string text() {
        const auto handle = take<StringHandle>();
        size_t length = 0;
        const char* data = nullptr;
        TORCH_ERROR_CODE_CHECK(torch_string_length(handle, &length));
        TORCH_ERROR_CODE_CHECK(torch_string_c_str(handle, &data));
        std::string result(data, length);
        TORCH_ERROR_CODE_CHECK(torch_delete_string(handle));
        return result;
    }

    void give(const Tensor& result) { values_[given_++] = torch::stable::detail::from(result); }
    void give(const std::string& result) {
        StringHandle handle = nullptr;
        TORCH_ERROR_CODE_CHECK(torch_new_string_handle(result.data(), result.size(), &handle));
        values_[given_++] = torch::stable::detail::from(handle);
    }

private:
    template <class Value>
    Value take() {
        return torch::stable::detail::to<Value>(values_[taken_++]);
    }

    StableIValue* values_;
    size_t taken_ = 0, given_ = 0;
};

}  // namespace lowbit_torch
