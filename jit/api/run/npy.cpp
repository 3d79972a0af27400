#include "jit/api/run/npy.h"

#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace megjit::run {
namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& why, const std::string& fix) {
    throw std::runtime_error("cannot read the arrays in " + name + "\n  why: " + why +
                             "\n  fix: " + fix);
}

constexpr const char* kWriteAgain = "write it again by np.save or np.savez";

struct Kind {
    std::string_view descr;
    megjit_dtype dtype;
    std::size_t bytes;
};
constexpr Kind kKinds[] = {
    {"<f4", MEGJIT_FLOAT32, 4}, {"<f2", MEGJIT_FLOAT16, 2}, {"<i4", MEGJIT_INT32, 4},
    {"<i2", MEGJIT_INT16, 2},   {"|i1", MEGJIT_INT8, 1},    {"|u1", MEGJIT_UINT8, 1},
    {"<u2", MEGJIT_UINT16, 2},  {"|b1", MEGJIT_BOOL, 1},    {"<c8", MEGJIT_COMPLEX64, 8},
    {"<f8", MEGJIT_FLOAT64, 8}, {"<i8", MEGJIT_INT64, 8}};

// Numbers of `file` that are checked against its end.
class Reader {
public:
    Reader(std::string_view file, const std::string& name) : file_(file), name_(name) {}
    std::string_view bytes(std::size_t at, std::size_t count) const {
        if (at > file_.size() || count > file_.size() - at)
            refuse(name_, "it is truncated", kWriteAgain);
        return file_.substr(at, count);
    }
    std::size_t number(std::size_t at, std::size_t count) const {
        std::size_t value = 0;  // the format is little endian, and so is x86-64
        std::memcpy(&value, bytes(at, count).data(), count);
        return value;
    }

private:
    std::string_view file_;
    const std::string& name_;
};

// What stands in the header's dict behind a key.
std::string_view behind(std::string_view header, std::string_view key, const std::string& name) {
    const std::size_t at = header.find(key);
    if (at == std::string_view::npos) refuse(name, "its header is not NumPy's", kWriteAgain);
    return header.substr(at + key.size());
}

std::vector<std::int64_t> shape_from(std::string_view text) {
    std::vector<std::int64_t> shape;
    for (std::size_t i = 0; i < text.size() && text[i] != ')'; ++i) {
        if (!std::isdigit(static_cast<unsigned char>(text[i]))) continue;
        std::int64_t extent = 0;
        for (; i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])); ++i)
            if (extent < (std::int64_t{1} << 40)) extent = extent * 10 + (text[i] - '0');
        shape.push_back(extent);
        --i;
    }
    return shape;
}

}  // namespace

std::string bytes_of(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    if (!stream) refuse(path, std::strerror(errno), "give the path of a file that is there");
    return {std::istreambuf_iterator<char>(stream), {}};
}

Array array_from(std::string_view file, const std::string& name) {
    const Reader reader(file, name);
    if (reader.bytes(0, 6) != "\x93NUMPY") refuse(name, "it is no .npy file", kWriteAgain);
    const std::size_t width = reader.number(6, 1) == 1 ? 2 : 4, size = reader.number(8, width);
    const std::string_view header = reader.bytes(8 + width, size);
    if (behind(header, "'fortran_order': ", name).starts_with("True"))
        refuse(name, "its columns lie one after the other", "apply np.ascontiguousarray to it");
    const std::string_view descr = behind(header, "'descr': '", name);
    for (const Kind& kind : kKinds) {
        if (!descr.starts_with(kind.descr)) continue;
        Array array{.dtype = kind.dtype,
                    .shape = shape_from(behind(header, "'shape': (", name)),
                    .bytes = {}};
        const std::string_view data = file.substr(8 + width + size);
        const std::size_t count = data.size() / kind.bytes;
        std::size_t wanted = 1;
        for (const std::int64_t extent : array.shape) {
            wanted *= static_cast<std::size_t>(extent);
            if (wanted > count) refuse(name, "it is truncated", kWriteAgain);
        }
        array.bytes = data.substr(0, wanted * kind.bytes);
        return array;
    }
    refuse(name, "its dtype is " + std::string(descr.substr(0, descr.find('\''))),
           "convert it to a dtype of megjit, such as float32");
}

// A zip file: its directory stands at the end, behind a last record that says where.
std::map<std::string, Array> arrays_from(std::string_view file, const std::string& name) {
    const std::size_t end = file.rfind("PK\5\6");
    if (end == std::string_view::npos) refuse(name, "it is no .npz file", kWriteAgain);
    const Reader reader(file, name);
    std::map<std::string, Array> arrays;
    std::size_t at = reader.number(end + 16, 4);
    for (std::size_t left = reader.number(end + 10, 2); left > 0; --left) {
        if (reader.bytes(at, 4) != "PK\1\2") refuse(name, "its directory is damaged", kWriteAgain);
        if (reader.number(at + 10, 2) != 0)
            refuse(name, "it is compressed", "write it by np.savez");
        const std::size_t size = reader.number(at + 24, 4), name_size = reader.number(at + 28, 2);
        const std::size_t local = reader.number(at + 42, 4);
        std::string entry(reader.bytes(at + 46, name_size));
        const std::size_t data =
            local + 30 + reader.number(local + 26, 2) + reader.number(local + 28, 2);
        if (entry.ends_with(".npy")) entry.resize(entry.size() - 4);
        arrays[entry] = array_from(reader.bytes(data, size), name + ", " + entry);
        at += 46 + name_size + reader.number(at + 30, 2) + reader.number(at + 32, 2);
    }
    return arrays;
}

}  // namespace megjit::run
