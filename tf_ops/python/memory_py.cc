// Requests on memory of NumPy (objects) or of another framework (smddp_tf/torch_backend), which go on while the caller
// does; and sets of the ranks that make them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "python/bindings.h"
#include "python/waiter.h"

namespace nb = nanobind;

namespace smddp {
namespace {

// A request under way. Keeps the owners of its memory until it has ended: its destructor waits.
class SubmittedRequest {
 public:
  explicit SubmittedRequest(nb::object owners) : owners_(std::move(owners)) {}
  ~SubmittedRequest() { (void)waiter_.Wait(); }

  DoneCallback callback() { return waiter_.callback(); }
  // False: it is still under way. Raises the error that it ended with.
  bool Wait(double seconds) const {
    if (!waiter_.WaitFor(std::chrono::duration<double>(seconds))) return false;
    ThrowIfError(waiter_.Wait());
    return true;
  }

 private:
  const nb::object owners_;
  Waiter waiter_;
};

// dtype, shape, address of the input, address of the output, rows of the output
using Memory = std::tuple<std::string, std::vector<int64_t>, uintptr_t, uintptr_t, int64_t>;

TensorRef RefTo(const Memory& memory) {
  const auto& [dtype, shape, input, output, rows] = memory;
  return {ValueOrThrow(DTypeFromName(dtype)), shape, reinterpret_cast<const void*>(input),
          reinterpret_cast<void*>(output)};
}

// The output of an allgather or alltoall of elements, of which the ranks bring `rows`.
Result<void*> OutputFor(const std::string& name, const Memory& memory, const std::vector<int64_t>& rows) {
  const int64_t brought = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  const auto& [dtype, shape, input, output, room] = memory;
  if (brought == room) return reinterpret_cast<void*>(output);
  return Status(Reason::kBadArgument, "The ranks send ", brought, " elements. Expected: ", room,
                ", as many as the output of this rank has, for '", name, "'.");
}

// `op`: the reduction, and in which dtype it is sent.
std::unique_ptr<SubmittedRequest> Submit(int kind, const std::string& name, const std::vector<Memory>& tensors,
                                         nb::object owners, const std::pair<int, std::string>& op, int root,
                                         const std::vector<int64_t>& splits, int process_set) {
  const std::shared_ptr<Session> session = SessionOrThrow(process_set);
  const WireDType wire = ValueOrThrow(WireDTypeFromName(op.second));
  Request request(static_cast<RequestKind>(kind), name, {}, {static_cast<ReduceOp>(op.first), 1.0, 1.0, wire});
  for (const Memory& memory : tensors) request.tensors.push_back(RefTo(memory));
  request.root = root;
  request.splits = splits;
  request.even_split = splits.empty();
  request.allocate = [name, tensors](int tensor, const std::vector<int64_t>& rows) {
    return OutputFor(name, tensors[tensor], rows);
  };
  auto submitted = std::make_unique<SubmittedRequest>(std::move(owners));
  session->Submit(std::move(request), submitted->callback());
  return submitted;
}

void AddOwnSet(const std::vector<int>& ranks, int number) {
  nb::gil_scoped_release release;
  ThrowIfError(AddOwnProcessSet(ranks, number));
}

}  // namespace

void BindMemory(nb::module_& m) {
  nb::class_<SubmittedRequest>(m, "SubmittedRequest").def("wait", &SubmittedRequest::Wait, nb::arg("seconds"));
  m.def("submit", &Submit);
  m.attr("FIRST_OWN_SET") = kFirstOwnSet;
  m.def("add_own_process_set", &AddOwnSet, nb::arg("ranks"), nb::arg("number"));
}

}  // namespace smddp
