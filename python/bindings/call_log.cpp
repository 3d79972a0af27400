// The log of eager calls (runtime/eager/call_log.h), for megengine.utils.profiler.
#include "runtime/eager/call_log.h"

#include "python/bindings/handle.h"

namespace megjit::python {

void bind_call_log(nb::module_& m) {
    m.def("start_call_log", &runtime::CallLog::start, nb::arg("with_lines"),
          "From now on each eager call is noted.");
    m.def("stop_call_log", [] {
        nb::list calls;
        for (const runtime::LoggedCall& call : runtime::CallLog::stop())
            calls.append(nb::make_tuple(call.call, call.device, call.begin, call.end, call.thread,
                                        call.bytes, call.where));
        return calls;
    }, "What was noted: (call, device, begin, end, thread, bytes, line), in ns of time.monotonic_ns.");
}

}  // namespace megjit::python
