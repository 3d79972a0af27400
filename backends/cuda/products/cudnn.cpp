#include "backends/cuda/products/cudnn.h"

#include <algorithm>

#include "runtime/host/error.h"

namespace megjit::cuda::cudnn {

using runtime::cat;
using runtime::DeviceError;

const Library* Library::find(std::string* why_not) {
    return runtime::made_of<Library>(runtime::NvidiaLibrary::cudnn, why_not);
}

Library::Library(const runtime::FoundLibrary& found) : found_(found) {
#define MEGJIT_X(symbol, name, result, parameters) found.function(#symbol, functions_.name);
    MEGJIT_CUDNN_FUNCTIONS(MEGJIT_X)
#undef MEGJIT_X
}

void Library::check(Status status, std::string_view what) const {
    if (status == 0) return;
    char words[2048] = "";
    functions_.last_error(words, sizeof words);
    throw DeviceError(cat("cuDNN ", version(), ": ", what, ": ", functions_.error_text(status),
                          *words ? ": " : "", words));
}

Descriptor::Descriptor(const Library& library, Kind kind) : library_(&library) {
    library.check(library.call().create_descriptor(kind, &raw_), "cannot make a descriptor");
}

Descriptor::~Descriptor() {
    if (raw_) library_->call().destroy_descriptor(raw_);
}

Descriptor& Descriptor::put(int name, Tag tag, size_t count, const void* values) {
    library_->check(library_->call().set(raw_, name, tag, static_cast<int64_t>(count), values),
                    cat("cannot set attribute ", name));
    return *this;
}

int64_t Descriptor::get(int name, Tag tag, int64_t room, void* values) const {
    int64_t count = 0;
    library_->check(library_->call().get(raw_, name, tag, room, &count, values),
                    cat("cannot get attribute ", name));
    return count;
}

Descriptor& Descriptor::set(int name, const std::vector<Descriptor>& values) {
    std::vector<RawDescriptor> raws;
    for (const Descriptor& value : values) raws.push_back(value.raw_);
    return put(name, Tag::descriptor, raws.size(), raws.data());
}

Descriptor& Descriptor::finalize(std::string_view what) {
    library_->check(library_->call().finalize(raw_), what);
    return *this;
}

int64_t Descriptor::integer(int name) const {
    int64_t value = 0;
    get(name, Tag::int64, 1, &value);
    return value;
}

std::string Descriptor::text(int name) const {
    std::string text(static_cast<size_t>(get(name, Tag::text, 0, nullptr)), '\0');
    get(name, Tag::text, static_cast<int64_t>(text.size()), text.data());
    return text;
}

std::vector<NumericalNote> Descriptor::notes() const {
    std::vector<NumericalNote> notes(static_cast<size_t>(NumericalNote::count));
    const auto room = static_cast<int64_t>(notes.size());
    const int64_t count = get(kEngineNotes, Tag::numerical_note, room, notes.data());
    notes.resize(static_cast<size_t>(std::min(count, room)));
    return notes;
}

std::vector<Descriptor> Descriptor::descriptors(int name, Kind kind) const {
    std::vector<Descriptor> made;
    const int64_t count = get(name, Tag::descriptor, 0, nullptr);
    std::vector<RawDescriptor> raws;
    for (int64_t i = 0; i < count; ++i) raws.push_back(made.emplace_back(*library_, kind).raw_);
    const int64_t filled = get(name, Tag::descriptor, count, raws.data());
    while (static_cast<int64_t>(made.size()) > filled) made.pop_back();
    return made;
}

}  // namespace megjit::cuda::cudnn
