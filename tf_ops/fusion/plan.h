// Which tensors are reduced in one bucket. A pure function: every rank that passes the same list gets the same
// result, and tests need no cluster.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/shape.h"
#include "core/slice.h"
#include "core/status.h"
#include "core/wire.h"

namespace smddp {

// The dtype to which wider floating tensors are cast between ranks; none: tensors are sent in their own dtype. kInt8:
// sums of float32 are sent between nodes in 8-bit blocks (collectives/rail/quantised_exchange.h), and nothing else
// changes, but that float64 is cast to float32.
using WireDType = std::optional<DType>;
// Not a dtype: the session chooses one by its link (WireFor) before anything else looks at it.
constexpr DType kWireByLink = static_cast<DType>(255);

// "" is none, "auto" kWireByLink. An error for another name that is neither int8 nor a floating dtype.
Result<WireDType> WireDTypeFromName(const std::string& name);
// "float16", or "as given"
const char* NameOf(const WireDType& wire);
// `wire`, or what kWireByLink stands for when a node sends so many bytes per second to others. The slower the link, the
// narrower: casting and rounding must take less time than they save.
WireDType WireFor(WireDType wire, double bytes_per_s);
// The dtype in which a tensor of `dtype` is sent and summed.
DType Narrowed(DType dtype, const WireDType& wire);

// What a reduction computes: a part of everything that describes one.
struct Arithmetic {
  ReduceOp op = ReduceOp::kAverage;
  double prescale = 1.0;
  double postscale = 1.0;
  WireDType wire_dtype = std::nullopt;

  void SetArithmetic(const Arithmetic& other) { *this = other; }
};

// Are the sums of so many elements sent between nodes in 8-bit blocks?
bool Quantised(DType dtype, int64_t elements, const Arithmetic& arithmetic);

struct TensorSpec {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;

  SMDDP_FIELDS(dtype, shape);
  int64_t elements() const { return ElementCount(shape); }
};

// Everything the ranks must agree on about one plan. `key` names the reducer that made it ("optimizer"), with a
// number when a graph has several ("tape#2").
struct PlanSpec : Arithmetic {
  std::string key;
  Parting parting;                  // kGather: a plain sum
  std::vector<TensorSpec> tensors;  // whole
  std::vector<std::string> notes;   // what else must agree, such as gradients that are reduced outside of the plan
  std::vector<std::string> names;   // of the tensors, for messages; may be empty, and need not agree
};

// A tensor's position in its bucket. Offsets count elements.
struct BucketSlot {
  int tensor = 0;
  int64_t offset = 0;
  int64_t elements = 0;
};

// Consecutive tensors of a plan (skipping others), with one dtype and one wire dtype, all quantised or none.
struct Bucket {
  DType dtype = DType::kFloat32;
  DType wire_dtype = DType::kFloat32;
  bool quantised = false;
  int64_t elements = 0;
  std::vector<BucketSlot> slots;

  int64_t wire_bytes() const { return elements * static_cast<int64_t>(SizeOf(wire_dtype)); }
};

// The largest bucket when the user sets no size. Each bucket is divided into a slice for every node's reducer. With
// many nodes, slices of a fixed bucket size would become so small that the cost per message dominates. So buckets
// grow with the nodes: 25 MiB up to 8 nodes, 50 at 16, 100 at 32, 200 from 64 on.
int64_t DefaultBucketBytes(int nodes);

// The bucket size of one plan when the user sets none. With several nodes a sixteenth of the plan's bytes, so that
// all but the last sixteenth can be sent while the backward pass still computes. On one node a quarter: memory is
// fast, and the end of each bucket wakes TensorFlow's threads (docs/decisions/0006). At most DefaultBucketBytes, at
// least a sixteenth of that.
int64_t BucketBytesFor(const PlanSpec& spec, int nodes);

// Processes the tensors in `order` (empty: as they are listed) with one open bucket per dtype, and another for those
// that are quantised, and closes a bucket when the next tensor would exceed `bucket_bytes` of the wire dtype. A larger
// tensor has its own bucket; 0: every tensor has. Tensors without elements have a slot but add nothing. Buckets are in
// the order of their first tensors.
std::vector<Bucket> PlanBuckets(const PlanSpec& spec, int64_t bucket_bytes, const std::vector<int>& order = {});

// Do both group the same tensors, bucket by bucket? (The order inside a bucket does not matter.)
bool SameGroups(const std::vector<Bucket>& a, const std::vector<Bucket>& b);

// Does `order` hold every number from 0 to `tensors` - 1 once?
bool IsPermutation(const std::vector<int>& order, size_t tensors);

// The tensor's name; "" when it has none.
std::string NameOf(const PlanSpec& spec, int index);

// "tensor 3: float32 [10, 2]"
std::string DescribeTensor(const PlanSpec& spec, int index);

// One line per fact, in order, so that two ranks' texts can be compared and the first difference shown.
std::vector<std::string> DescribePlan(const PlanSpec& spec);

// A hash of that description, as 16 hexadecimal digits.
std::string PlanDigest(const PlanSpec& spec);

// The plan's key, with a number where a graph holds several of that key (runtime/api/session.h PlannedTensor):
// "tape@2".
std::string KeyAt(const PlanSpec& spec, int site);
// The name by which the ranks match the plan: its key, site and content.
std::string PlanName(const PlanSpec& spec, int site);

}  // namespace smddp
