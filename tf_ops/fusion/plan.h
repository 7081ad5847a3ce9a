// Which tensors travel together. A pure function: every rank that passes the same list gets the same answer, and a
// test needs no cluster.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/status.h"

namespace smddp {

// What floating tensors wider than it are cast to on their way between ranks; none: every tensor travels as it is.
using WireDType = std::optional<DType>;

// "" is none. An error for a name that is no floating dtype.
Result<WireDType> WireDTypeFromName(const std::string& name);
// "float16", or "as given"
const char* NameOf(const WireDType& wire);
// The dtype in which a tensor of `dtype` travels.
DType Narrowed(DType dtype, const WireDType& wire);

struct TensorSpec {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;

  int64_t elements() const;
};

// Everything the ranks must agree on about one plan. `key` names the reducer that made it ("optimizer"), and which one
// of several in the same graph ("tape#2").
struct PlanSpec {
  std::string key;
  std::vector<TensorSpec> tensors;
  ReduceOp op = ReduceOp::kAverage;
  double prescale = 1.0;
  double postscale = 1.0;
  WireDType wire_dtype = std::nullopt;
  std::vector<std::string> notes;  // what else must agree, such as gradients that travel outside of the plan
  std::vector<std::string> names;  // of the tensors, for people; may be empty, and need not agree
};

// A tensor's place in its bucket. Offsets count elements.
struct BucketSlot {
  int tensor = 0;
  int64_t offset = 0;
  int64_t elements = 0;
};

// Consecutive tensors of a plan (leaving out those of other dtypes), one dtype, one wire dtype.
struct Bucket {
  DType dtype = DType::kFloat32;
  DType wire_dtype = DType::kFloat32;
  int64_t elements = 0;
  std::vector<BucketSlot> slots;

  int64_t wire_bytes() const { return elements * static_cast<int64_t>(SizeOf(wire_dtype)); }
};

// The largest bucket when the user names no size. Each bucket is cut into a shard for every node's reducer; when nodes
// become many, shards of buckets of one size become so small that messages cost more than their bytes. So buckets grow
// with the nodes: 25 MiB up to 8 nodes, 50 at 16, 100 at 32, 200 from 64 on.
int64_t DefaultBucketBytes(int nodes);

// The bucket size of one plan when the user names none. Between nodes a sixteenth of its bytes, so that all but the
// last sixteenth can travel while the backward pass still computes. On one node a quarter: memory is fast, and each
// bucket that ends wakes TensorFlow's threads (docs/decisions/0006). At most DefaultBucketBytes, at least a sixteenth
// of that.
int64_t BucketBytesFor(const PlanSpec& spec, int nodes);

struct FusionLimits {
  int64_t bucket_bytes = 25 << 20;  // of the wire dtype; 0 puts every tensor in a bucket of its own
};

// Walks the tensors in `order` (empty: as they are listed) with one open bucket for each dtype, and closes it when the
// next tensor would pass the limit. A tensor larger than the limit has a bucket of its own. Tensors without elements
// have a slot but add nothing. Buckets come in the order of their first tensors.
std::vector<Bucket> PlanBuckets(const PlanSpec& spec, const FusionLimits& limits, const std::vector<int>& order = {});

// Do both put the same tensors together, bucket by bucket? (The order inside of a bucket is of no consequence.)
bool SameGroups(const std::vector<Bucket>& a, const std::vector<Bucket>& b);

// Does `order` hold every number from 0 to `tensors` - 1 once?
bool IsPermutation(const std::vector<int>& order, size_t tensors);

// The tensor's name; "" when it was given none.
std::string NameOf(const PlanSpec& spec, int index);

// "tensor 3: float32 [10, 2]"
std::string DescribeTensor(const PlanSpec& spec, int index);

// One line per fact, in order, so that two ranks' texts can be compared and the first difference shown.
std::vector<std::string> DescribePlan(const PlanSpec& spec);

// A hash of that description, as 16 hexadecimal digits.
std::string PlanDigest(const PlanSpec& spec);

// The key, and the number of the plan's place where a graph holds several (runtime/api/session.h PlannedTensor):
// "tape@2".
std::string KeyAt(const PlanSpec& spec, int site);
// By which the ranks match the plan: its key, place and content.
std::string PlanName(const PlanSpec& spec, int site);

}  // namespace smddp
