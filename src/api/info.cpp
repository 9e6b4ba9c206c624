// lowbit_info: this machine and every kernel, as JSON.
#include <cstdio>

#include "api/handles.hpp"
#include "core/registry.hpp"
#include "cpu/features.hpp"
#include "cuda/devices.hpp"

using namespace lowbit;
using namespace lowbit::api;

namespace {

std::string quoted(const std::string& text) {
    std::string result = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            result += '\\';
            result += c;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            char escape[8];
            std::snprintf(escape, sizeof(escape), "\\u%04x", unsigned(c));
            result += escape;
        } else {
            result += c;
        }
    }
    return result + '"';
}

// Members and elements are joined with commas; the caller writes the brackets.
class List {
public:
    void add(const std::string& item) { text_ += (text_.empty() ? "" : ", ") + item; }
    template <class Value>
    void member(const char* key, const Value& value) {
        add(quoted(key) + ": " + core::join(value));
    }
    const std::string& text() const { return text_; }

private:
    std::string text_;
};

std::string object(const List& members) { return "{" + members.text() + "}"; }
std::string array(const List& elements) { return "[" + elements.text() + "]"; }
const char* boolean(bool value) { return value ? "true" : "false"; }

std::string cpu_section() {
    List flags, section;
    for (const std::string& flag : cpu::features().flags) flags.add(quoted(flag));
    section.member("name", quoted(cpu::features().processor));
    section.member("threads", core::available_threads());
    section.member("features", array(flags));
    return object(section);
}

std::string cuda_section() {
    const cuda::DeviceList& list = cuda::devices();
    List devices, section;
    for (const cuda::DeviceInfo& device : list.devices) {
        List members;
        members.member("name", quoted(device.name));
        members.member("compute_capability", quoted(core::join(device.major, ".", device.minor)));
        members.member("multiprocessors", device.multiprocessors);
        members.member("memory_bytes", device.memory_bytes);
        members.member("l2_bytes", device.l2_bytes);
        members.member("shared_bytes_per_block", device.shared_bytes_per_block);
        devices.add(object(members));
    }
    section.member("driver_version", list.driver_version);
    section.member("runtime_version", list.runtime_version);
    section.member("problem", quoted(list.problem));
    section.member("devices", array(devices));
    return object(section);
}

template <class Problem>
void add_kernels(List& all) {
    for (const auto& kernel : core::kernels_for<Problem>().kernels()) {
        List members;
        members.member("verb", quoted(Problem::verb));
        members.member("name", quoted(kernel.name));
        members.member("device", quoted(kernel.device == Device::cuda ? "cuda" : "cpu"));
        members.member("needs", quoted(kernel.needs));
        members.member("available", boolean(kernel.unavailable.empty()));
        members.member("reason", quoted(kernel.unavailable));
        all.add(object(members));
    }
}

}  // namespace

lowbit_status lowbit_info(char* text, size_t capacity, size_t* length) {
    return guard([&] {
        List kernels, info;
        add_kernels<core::QuantizeProblem>(kernels);
        add_kernels<core::DequantizeProblem>(kernels);
        add_kernels<core::ConvertProblem>(kernels);
        add_kernels<core::MatmulProblem>(kernels);
        add_kernels<core::SignBitsProblem>(kernels);
        add_kernels<core::BinaryConvProblem>(kernels);
        info.member("version", quoted(LOWBIT_VERSION_STRING));
        info.member("cpu", cpu_section());
        info.member("cuda", cuda_section());
        info.member("kernels", array(kernels));
        copy_text("info", object(info), text, capacity, length);
    });
}
