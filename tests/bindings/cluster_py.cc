// Test access to whole jobs of ranks-as-threads (inproc/cluster.h).
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <functional>
#include <list>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "bindings/bind.h"
#include "core/dtype.h"
#include "core/slice.h"
#include "inproc/cluster.h"
#include "python/errors.h"
#include "python/waiter.h"

namespace nb = nanobind;

namespace smddp {
namespace {

using Bytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::unique_ptr<InprocCluster> StartCluster(const std::vector<std::string>& hosts, size_t arrays, int64_t chunk_bytes,
                                            const std::string& rail_algorithm = "auto", bool shared_tensors = false) {
  if (hosts.empty() || hosts.size() != arrays) throw nb::value_error("One array per rank is needed.");
  ClusterOptions options;
  options.host_of_rank = hosts;
  if (chunk_bytes > 0) options.chunk_bytes = chunk_bytes;
  options.bucket_bytes = 4 * options.chunk_bytes;
  options.rail_algorithm = rail_algorithm;
  options.shared_tensors = shared_tensors;
  return ValueOrThrow(StartInprocCluster(options));
}

// Every rank's requests, waited for together; the first error is thrown.
class Waiters {
 public:
  DoneCallback callback() { return waiters_.emplace_back().callback(); }
  void WaitAll() {
    std::vector<Status> statuses;
    for (Waiter& waiter : waiters_) statuses.push_back(waiter.Wait());
    for (const Status& status : statuses) ThrowIfError(status);
  }

 private:
  std::list<Waiter> waiters_;
};

// A rank's array as three tensors of uneven length, so that buckets have seams.
std::vector<TensorRef> Pieces(DType dtype, const Bytes& input, const Bytes& output) {
  const int64_t elements = static_cast<int64_t>(input.size() / SizeOf(dtype));
  const int64_t ends[] = {0, elements / 5, elements / 2, elements};
  std::vector<TensorRef> pieces;
  for (int i = 0; i < 3; ++i) {
    const size_t offset = ends[i] * SizeOf(dtype);
    pieces.push_back({dtype, {ends[i + 1] - ends[i]}, input.data() + offset, output.data() + offset});
  }
  return pieces;
}

void PlannedAllreduce(InprocCluster& cluster, const std::vector<std::vector<TensorRef>>& pieces, ReduceOp op,
                      double prescale, double postscale, WireDType wire_dtype = {}) {
  Waiters waiters;
  for (int rank = 0; rank < cluster.size(); ++rank) {
    PlanSpec spec;
    spec.key = "cluster";
    for (const TensorRef& piece : pieces[rank]) spec.tensors.push_back({piece.dtype, piece.shape});
    spec.op = op;
    spec.prescale = prescale;
    spec.postscale = postscale;
    spec.wire_dtype = wire_dtype;
    spec.parting = pieces[rank].front().parting;
    const int plan = ValueOrThrow(cluster.session(rank).RegisterPlan(spec));
    for (size_t i = 0; i < pieces[rank].size(); ++i) {
      const size_t index = (i + rank) % pieces[rank].size();  // another order on every rank
      cluster.session(rank).ReducePlanned({plan, static_cast<int>(index)}, pieces[rank][index], waiters.callback());
    }
  }
  waiters.WaitAll();
}

// A plan with parts, of tensors with `lengths` elements. Inputs and outputs hold them one after another, whole or this
// rank's parts of them. Returns the bytes that each rank sent to other nodes.
std::vector<int64_t> WithParts(const std::vector<std::string>& hosts, const std::vector<Bytes>& inputs,
                               const std::vector<Bytes>& outputs, const std::string& dtype_name,
                               const std::vector<int64_t>& lengths, bool gathers, int parts, int op, double postscale,
                               int64_t chunk_bytes, const std::string& wire_dtype) {
  const DType dtype = ValueOrThrow(DTypeFromName(dtype_name));
  const Parting parting = {gathers ? PartMode::kGather : PartMode::kReduce, parts};
  auto cluster = StartCluster(hosts, inputs.size(), chunk_bytes);
  std::vector<std::vector<TensorRef>> pieces(inputs.size());
  for (size_t rank = 0; rank < inputs.size(); ++rank) {
    size_t whole = 0, part = 0;
    for (int64_t length : lengths) {
      TensorRef& piece = pieces[rank].emplace_back();
      piece.dtype = dtype;
      piece.shape = {length};
      piece.input = inputs[rank].data() + (gathers ? part : whole);
      piece.output = outputs[rank].data() + (gathers ? whole : part);
      piece.parting = parting;
      whole += piece.bytes();
      part += parting.Length(length) * SizeOf(dtype);
    }
    if (inputs[rank].size() != (gathers ? part : whole) || outputs[rank].size() != (gathers ? whole : part)) {
      throw nb::value_error("Wrong length of an array.");
    }
  }
  PlannedAllreduce(*cluster, pieces, static_cast<ReduceOp>(op), 1.0, postscale,
                   ValueOrThrow(WireDTypeFromName(wire_dtype)));
  std::vector<int64_t> sent;
  for (int rank = 0; rank < cluster->size(); ++rank) {
    sent.push_back(cluster->session(rank).diagnostics().Stats().rail_bytes_sent);
  }
  return sent;
}

// Returns the bytes of each rank's tensors that others read where they lay.
std::vector<int64_t> Allreduce(const std::vector<std::string>& hosts, const std::vector<Bytes>& inputs,
                               const std::vector<Bytes>& outputs, const std::string& dtype_name, int op,
                               double prescale, double postscale, int64_t chunk_bytes, bool planned,
                               const std::string& wire_dtype, const std::string& rail_algorithm, bool shared_tensors) {
  const DType dtype = ValueOrThrow(DTypeFromName(dtype_name));
  const WireDType wire = ValueOrThrow(WireDTypeFromName(wire_dtype));
  if (outputs.size() != inputs.size()) throw nb::value_error("As many outputs as inputs are needed.");
  auto cluster = StartCluster(hosts, inputs.size(), chunk_bytes, rail_algorithm, shared_tensors);
  std::vector<std::vector<TensorRef>> pieces;
  for (size_t rank = 0; rank < inputs.size(); ++rank) {
    if (inputs[rank].size() != outputs[rank].size()) throw nb::value_error("Outputs must be as long as inputs.");
    pieces.push_back(Pieces(dtype, inputs[rank], outputs[rank]));
  }
  const Arithmetic arithmetic = {static_cast<ReduceOp>(op), prescale, postscale, wire};
  if (planned) {
    PlannedAllreduce(*cluster, pieces, arithmetic.op, prescale, postscale, wire);
  } else {
    Waiters waiters;
    for (int rank = 0; rank < cluster->size(); ++rank) {
      cluster->session(rank).Submit({RequestKind::kAllreduce, "cluster", pieces[rank], arithmetic}, waiters.callback());
    }
    waiters.WaitAll();
  }
  std::vector<int64_t> referred;
  for (int rank = 0; rank < cluster->size(); ++rank) {
    referred.push_back(cluster->session(rank).diagnostics().Stats().node_bytes_referred);
  }
  return referred;
}

void Broadcast(const std::vector<std::string>& hosts, const std::vector<Bytes>& arrays, int root) {
  auto cluster = StartCluster(hosts, arrays.size(), 0);
  Waiters waiters;
  for (int rank = 0; rank < cluster->size(); ++rank) {
    const Bytes& array = arrays[rank];
    const TensorRef tensor = {DType::kUInt8, {static_cast<int64_t>(array.size())}, array.data(), array.data()};
    Request request(RequestKind::kBroadcast, "cluster", {tensor});
    request.root = root;
    cluster->session(rank).Submit(std::move(request), waiters.callback());
  }
  waiters.WaitAll();
}

TensorRef RowsOfBytes(const Bytes& input, int64_t row_bytes) {
  return {DType::kUInt8, {static_cast<int64_t>(input.size()) / row_bytes, row_bytes}, input.data(), nullptr};
}

nb::list AsArrays(const std::vector<std::vector<uint8_t>>& results) {
  nb::list arrays;
  for (const auto& result : results) {
    auto* copy = new uint8_t[result.size() + 1];
    std::copy(result.begin(), result.end(), copy);
    nb::capsule owner(copy, [](void* memory) noexcept { delete[] static_cast<uint8_t*>(memory); });
    arrays.append(nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(copy, {result.size()}, owner));
  }
  return arrays;
}

nb::list Allgather(const std::vector<std::string>& hosts, const std::vector<Bytes>& inputs, int64_t row_bytes) {
  if (row_bytes < 1) throw nb::value_error("row_bytes must be at least 1.");
  auto cluster = StartCluster(hosts, inputs.size(), 0);
  std::vector<std::vector<uint8_t>> results(inputs.size());
  Waiters waiters;
  for (int rank = 0; rank < cluster->size(); ++rank) {
    Request request(RequestKind::kAllgather, "cluster", {RowsOfBytes(inputs[rank], row_bytes)});
    request.allocate = [&result = results[rank], row_bytes](int, const std::vector<int64_t>& rows) -> Result<void*> {
      result.resize(std::accumulate(rows.begin(), rows.end(), int64_t{0}) * row_bytes);
      return result.data();
    };
    cluster->session(rank).Submit(std::move(request), waiters.callback());
  }
  waiters.WaitAll();
  return AsArrays(results);
}

// Returns what every rank received. A rank without splits sends as much to each.
nb::list Alltoall(const std::vector<std::string>& hosts, const std::vector<Bytes>& inputs, int64_t row_bytes,
                  const std::vector<std::vector<int64_t>>& splits) {
  if (row_bytes < 1) throw nb::value_error("row_bytes must be at least 1.");
  auto cluster = StartCluster(hosts, inputs.size(), 0);
  std::vector<std::vector<uint8_t>> results(inputs.size());
  Waiters waiters;
  for (int rank = 0; rank < cluster->size(); ++rank) {
    Request request(RequestKind::kAlltoall, "cluster", {RowsOfBytes(inputs[rank], row_bytes)});
    request.even_split = splits[rank].empty();
    request.splits = splits[rank];
    request.allocate = [&result = results[rank], row_bytes](int, const std::vector<int64_t>& rows) -> Result<void*> {
      result.resize(std::accumulate(rows.begin(), rows.end(), int64_t{0}) * row_bytes);
      return result.data();
    };
    cluster->session(rank).Submit(std::move(request), waiters.callback());
  }
  waiters.WaitAll();
  return AsArrays(results);
}

// Two tensors of `row_elements` elements per row travel together: the first `rows[0]` rows of each input and the rest.
// `outputs[rank]` has room for the rank's rows of both.
void Reducescatter(const std::vector<std::string>& hosts, const std::vector<Bytes>& inputs,
                   const std::vector<Bytes>& outputs, const std::string& dtype_name, const std::vector<int64_t>& rows,
                   int64_t row_elements, int op, double prescale, double postscale, int64_t chunk_bytes) {
  const DType dtype = ValueOrThrow(DTypeFromName(dtype_name));
  auto cluster = StartCluster(hosts, inputs.size(), chunk_bytes);
  Waiters waiters;
  for (int rank = 0; rank < cluster->size(); ++rank) {
    Request request(RequestKind::kReducescatter, "cluster", {}, {static_cast<ReduceOp>(op), prescale, postscale});
    size_t from = 0, into = 0;
    for (int64_t count : rows) {
      request.tensors.push_back(
          {dtype, {count, row_elements}, inputs[rank].data() + from, outputs[rank].data() + into});
      const size_t row_bytes = request.tensors.back().row_bytes();
      from += static_cast<size_t>(count) * row_bytes;
      into += static_cast<size_t>(RowsOf(count, cluster->size(), rank).size()) * row_bytes;
    }
    if (from != inputs[rank].size() || into != outputs[rank].size()) throw nb::value_error("Wrong length of an array.");
    cluster->session(rank).Submit(std::move(request), waiters.callback());
  }
  waiters.WaitAll();
}

// Many operations at once, in another order on every rank: operation i sums (even i) or is sent from rank i % size (odd
// i). `arrays[rank][i]` is float32 and changed in place.
void Concurrent(const std::vector<std::string>& hosts, const std::vector<std::vector<Bytes>>& arrays,
                int64_t chunk_bytes) {
  auto cluster = StartCluster(hosts, arrays.size(), chunk_bytes);
  const int size = cluster->size();
  Waiters waiters;
  for (int rank = 0; rank < size; ++rank) {
    const size_t operations = arrays[rank].size();
    for (size_t at = 0; at < operations; ++at) {
      const size_t i = rank % 2 == 0 ? at : operations - 1 - at;
      const Bytes& array = arrays[rank][i];
      const TensorRef tensor = {DType::kFloat32, {static_cast<int64_t>(array.size() / 4)}, array.data(), array.data()};
      const std::string name = "operation " + std::to_string(i);
      const RequestKind kind = i % 2 == 0 ? RequestKind::kAllreduce : RequestKind::kBroadcast;
      Request request(kind, name, {tensor}, {ReduceOp::kSum});
      if (kind == RequestKind::kBroadcast) request.root = static_cast<int>(i) % size;
      cluster->session(rank).Submit(std::move(request), waiters.callback());
    }
  }
  waiters.WaitAll();
}

// The same for the buckets of a plan: every tensor is a bucket of its own, and every rank hands them over in another
// order.
void ConcurrentPlanned(const std::vector<std::string>& hosts, const std::vector<std::vector<Bytes>>& arrays,
                       int64_t chunk_bytes) {
  ClusterOptions options;
  options.host_of_rank = hosts;
  options.chunk_bytes = chunk_bytes;
  options.bucket_bytes = 0;
  auto cluster = ValueOrThrow(StartInprocCluster(options));
  std::vector<std::vector<TensorRef>> tensors(arrays.size());
  for (size_t rank = 0; rank < arrays.size(); ++rank) {
    for (const Bytes& array : arrays[rank]) {
      tensors[rank].push_back({DType::kFloat32, {static_cast<int64_t>(array.size() / 4)}, array.data(), array.data()});
    }
  }
  PlannedAllreduce(*cluster, tensors, ReduceOp::kSum, 1.0, 1.0);
}

// Rank 0 submits two barriers of one name at once, the others the second only after the first: what every rank is told
// about the second ("" for no error).
std::vector<std::string> SameNameTwice(const std::vector<std::string>& hosts) {
  auto cluster = StartCluster(hosts, hosts.size(), 0);
  Waiter first_of_0, second_of_0;
  cluster->session(0).Submit({RequestKind::kBarrier, "twice", {}}, first_of_0.callback());
  cluster->session(0).Submit({RequestKind::kBarrier, "twice", {}}, second_of_0.callback());
  (void)cluster->session(0).diagnostics().StopTimeline();  // returns when its engine has both: before anybody else asks
  std::list<Waiter> firsts, seconds;
  for (int rank = 1; rank < cluster->size(); ++rank) {
    cluster->session(rank).Submit({RequestKind::kBarrier, "twice", {}}, firsts.emplace_back().callback());
  }
  for (Waiter& first : firsts) ThrowIfError(first.Wait());
  ThrowIfError(first_of_0.Wait());
  for (int rank = 1; rank < cluster->size(); ++rank) {
    cluster->session(rank).Submit({RequestKind::kBarrier, "twice", {}}, seconds.emplace_back().callback());
  }
  std::vector<std::string> messages = {second_of_0.Wait().message()};
  for (Waiter& second : seconds) messages.push_back(second.Wait().message());
  return messages;
}

}  // namespace

void BindCluster(nb::module_& m) {
  m.def("cluster_concurrent", &Concurrent, nb::arg("hosts"), nb::arg("arrays"), nb::arg("chunk_bytes"));
  m.def("cluster_concurrent_planned", &ConcurrentPlanned, nb::arg("hosts"), nb::arg("arrays"), nb::arg("chunk_bytes"));
  m.def("cluster_same_name_twice", &SameNameTwice, nb::arg("hosts"));
  m.def("cluster_allreduce", &Allreduce, nb::arg("hosts"), nb::arg("inputs"), nb::arg("outputs"), nb::arg("dtype"),
        nb::arg("op"), nb::arg("prescale"), nb::arg("postscale"), nb::arg("chunk_bytes"), nb::arg("planned"),
        nb::arg("wire_dtype") = "", nb::arg("rail_algorithm") = "auto", nb::arg("shared_tensors") = false);
  m.def("cluster_with_parts", &WithParts, nb::arg("hosts"), nb::arg("inputs"), nb::arg("outputs"), nb::arg("dtype"),
        nb::arg("lengths"), nb::arg("gathers"), nb::arg("parts"), nb::arg("op"), nb::arg("postscale"),
        nb::arg("chunk_bytes"), nb::arg("wire_dtype") = "");
  m.def("cluster_broadcast", &Broadcast, nb::arg("hosts"), nb::arg("arrays"), nb::arg("root"));
  m.def("cluster_allgather", &Allgather, nb::arg("hosts"), nb::arg("inputs"), nb::arg("row_bytes"));
  m.def("cluster_alltoall", &Alltoall, nb::arg("hosts"), nb::arg("inputs"), nb::arg("row_bytes"), nb::arg("splits"));
  m.def("cluster_reducescatter", &Reducescatter, nb::arg("hosts"), nb::arg("inputs"), nb::arg("outputs"),
        nb::arg("dtype"), nb::arg("rows"), nb::arg("row_elements"), nb::arg("op"), nb::arg("prescale"),
        nb::arg("postscale"), nb::arg("chunk_bytes"));
}

}  // namespace smddp
