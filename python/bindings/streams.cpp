// Queues of work as Python sees them (core/_streams.py): order between them and those of other
// libraries, time, and data that go to a device beside its work.
#include <nanobind/stl/string.h>

#include "python/bindings/handle.h"
#include "runtime/core/uploads.h"
#include "runtime/host/host_lock.h"

namespace megjit::python {
namespace {

using runtime::Stream;
using runtime::Ticket;

Stream& stream_of(const std::string& device) { return runtime::find_device(device).stream(); }

void bind_order(nb::module_& m) {
    const auto on = nb::arg("device");
    m.def("stream_native", [](const std::string& device) { return stream_of(device).native(); }, on,
          "What the driver calls the device's stream; 0 on CPUs.");
    m.def("stream_record", [](const std::string& device) { return stream_of(device).record(); }, on,
          "A ticket for what was queued so far.");
    m.def("stream_record_time",
          [](const std::string& device) { return stream_of(device).record_time(); }, on);
    m.def("stream_seconds", [](const std::string& device, Ticket begin, Ticket end) {
        return stream_of(device).seconds_between(begin, end);
    }, on, nb::arg("begin"), nb::arg("end"));
    m.def("stream_is_past", [](const std::string& device, Ticket ticket) {
        return stream_of(device).is_past(ticket);
    }, on, nb::arg("ticket"));
    m.def("stream_synchronize", [](const std::string& device, Ticket ticket) {
        Stream& stream = stream_of(device);
        const runtime::WithoutHostLock release;
        stream.synchronize(ticket);
    }, on, nb::arg("ticket"));
    m.def("stream_wait", [](const std::string& device, const std::string& other, Ticket ticket) {
        stream_of(device).wait(stream_of(other), ticket);
    }, on, nb::arg("other"), nb::arg("ticket"));
    m.def("stream_wait_for_native", [](const std::string& device, uintptr_t other) {
        stream_of(device).wait_for_native(other);
    }, on, nb::arg("other"));
    m.def("stream_let_native_wait", [](const std::string& device, uintptr_t other, Ticket ticket) {
        stream_of(device).let_native_wait(other, ticket);
    }, on, nb::arg("other"), nb::arg("ticket"));
}

}  // namespace

void bind_streams(nb::module_& m) {
    bind_order(m);
    nb::class_<runtime::Upload>(m, "Upload", "A tensor that is on its way to a device.")
        .def("take", [](runtime::Upload& self) {
        TensorRef value = self.take();
        if (value->storage()->is_worth_listing()) value->storage()->list("Tensor", value->type());
        return wrap(std::move(value));
    }, nb::sig("def take(self) -> Tensor"), "The tensor. Once.");
    nb::class_<runtime::Uploads>(m, "Uploads", "Copies data to a device beside its work.")
        .def("__init__",
             [](runtime::Uploads* self, const std::string& device) {
        new (self) runtime::Uploads(runtime::find_device(device));
    }, nb::arg("device"))
        .def("begin", [](runtime::Uploads& self, nb::handle value) {
        const auto [type, array] = our_array(value, {});
        const nb::object address = array.attr("ctypes").attr("data");
        const auto* const data = reinterpret_cast<const void*>(nb::cast<uintptr_t>(address));
        const runtime::WithoutHostLock release;
        return runtime::Upload(self.begin(type, data));
    }, nb::arg("value"), "A copy of what np.asarray takes, of the dtype that a tensor of it has.");
}

}  // namespace megjit::python
