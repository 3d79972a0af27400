// The options of traced functions, and of the search for their memory plans.
#include <nanobind/stl/vector.h>

#include "jit/plan/plan_ladder.h"
#include "jit/trace/trace_function.h"
#include "python/bindings/handle.h"

namespace megjit::python {
namespace {

// Options(field=value, ...): each field is an attribute, too.
template <class Options>
void set_fields(nb::handle_t<Options> self, nb::kwargs fields) {
    new (nb::inst_ptr<Options>(self)) Options();
    nb::inst_mark_ready(self);
    for (auto [name, value] : fields) nb::setattr(self, name, value);
}

}  // namespace

void bind_trace_options(nb::module_& m) {
    using jit::MemoryOptions, jit::PipelineOptions, jit::TraceOptions, memory::RematSearch;
    nb::class_<RematSearch>(m, "RematSearch", "How recomputation is searched for.")
        .def("__init__", &set_fields<RematSearch>)
        .def_rw("thresholds", &RematSearch::thresholds)
        .def_rw("genetic_rounds", &RematSearch::genetic_rounds)
        .def_rw("genetic_pool", &RematSearch::genetic_pool)
        .def_rw("workers", &RematSearch::workers);
    nb::class_<MemoryOptions>(m, "MemoryOptions", "What a traced function may take of memory.")
        .def("__init__", &set_fields<MemoryOptions>)
        .def_rw("limit", &MemoryOptions::limit, "Bytes of a call; 0: none.")
        .def_rw("is_sublinear", &MemoryOptions::is_sublinear)
        .def_rw("enough_bytes", &MemoryOptions::enough_bytes)
        .def_rw("only_looks", &MemoryOptions::only_looks)
        .def_rw("spill", &MemoryOptions::spill, "A folder; empty: none.")
        .def_rw("search", &MemoryOptions::search);
    nb::class_<PipelineOptions>(m, "PipelineOptions", "Which passes a graph goes through.")
        .def("__init__", &set_fields<PipelineOptions>)
        .def_rw("opt_level", &PipelineOptions::opt_level)
        .def_rw("exact", &PipelineOptions::exact)
        .def_rw("fuse", &PipelineOptions::fuse)
        .def_rw("fuse_reduce", &PipelineOptions::fuse_reduce)
        .def_rw("fuse_dimshuffle", &PipelineOptions::fuse_dimshuffle)
        .def_rw("memory", &PipelineOptions::memory);
    nb::class_<TraceOptions>(m, "TraceOptions", "How a function is recorded and compiled.")
        .def("__init__", &set_fields<TraceOptions>)
        .def("copy", [](const TraceOptions& self) { return self; })
        .def_rw("name", &TraceOptions::name)
        .def_rw("symbolic", &TraceOptions::symbolic)
        .def_rw("symbolic_shape", &TraceOptions::symbolic_shape)
        .def_rw("capture_as_const", &TraceOptions::capture_as_const)
        .def_rw("record_only", &TraceOptions::record_only)
        .def_rw("profiling", &TraceOptions::profiling)
        .def_rw("records_mismatches", &TraceOptions::records_mismatches)
        .def_rw("only_plan", &TraceOptions::only_plan)
        .def_rw("version_bytes", &TraceOptions::version_bytes)
        .def_rw("pipeline", &TraceOptions::pipeline);
    m.def("searched_part", &jit::searched_part,
          "Of the search for memory plans that runs: the part that is done, 0 to 1; else 0.");
}

}  // namespace megjit::python
