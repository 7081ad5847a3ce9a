#include "collectives/rail/adasum.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <type_traits>

#include "collectives/p2p/rounds_task.h"
#include "collectives/patterns/doubling.h"

namespace smddp {
namespace {

constexpr int64_t kBlock = 1024;
constexpr int64_t kLanes = 8;  // parallel sums, so that the compiler can vectorise
// Division by a squared length below this is not safe; such a vector is added without scaling.
constexpr double kSmallestSquare = 1.5e-154;  // sqrt of the smallest normal float64

// Two vectors of one tensor, read block by block as float64. Plain code with a fixed order of operations: the same
// bits on every processor.
class Couple {
 public:
  Couple(const Compute& compute, DType dtype, const void* a, const void* b, int64_t elements)
      : compute_(compute), dtype_(dtype), a_(a), b_(b), elements_(elements) {}

  void AddInto(void* into) {
    double aa[kLanes] = {}, ab[kLanes] = {}, bb[kLanes] = {};
    ForEachBlock([&](int64_t, int64_t count) {
      for (int64_t i = count; i % kLanes != 0; ++i) a_block_[i] = b_block_[i] = 0;
      for (int64_t i = 0; i < count; i += kLanes) {
        for (int64_t k = 0; k < kLanes; ++k) {
          aa[k] += a_block_[i + k] * a_block_[i + k];
          ab[k] += a_block_[i + k] * b_block_[i + k];
          bb[k] += b_block_[i + k] * b_block_[i + k];
        }
      }
    });
    const double of_a = Share(Total(ab), Total(aa)), of_b = Share(Total(ab), Total(bb));
    ForEachBlock([&](int64_t first, int64_t count) {
      for (int64_t i = 0; i < count; ++i) a_block_[i] = of_a * a_block_[i] + of_b * b_block_[i];
      compute_.Cast(At(into, first), dtype_, a_block_, DType::kFloat64, count, Scaling());
    });
  }

 private:
  static double Share(double dot, double square) { return square < kSmallestSquare ? 1.0 : 1.0 - dot / (2 * square); }

  static double Total(const double (&lanes)[kLanes]) { return std::accumulate(lanes, lanes + kLanes, 0.0); }

  template <class T>
  T* At(T* base, int64_t element) const {
    using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
    return static_cast<Byte*>(base) + element * static_cast<int64_t>(SizeOf(dtype_));
  }

  template <class Visit>
  void ForEachBlock(Visit visit) {
    for (int64_t first = 0; first < elements_; first += kBlock) {
      const int64_t count = std::min(kBlock, elements_ - first);
      compute_.Cast(a_block_, DType::kFloat64, At(a_, first), dtype_, count, Scaling());
      compute_.Cast(b_block_, DType::kFloat64, At(b_, first), dtype_, count, Scaling());
      visit(first, count);
    }
  }

  const Compute& compute_;
  const DType dtype_;
  const void* const a_;
  const void* const b_;
  const int64_t elements_;
  double a_block_[kBlock], b_block_[kBlock];
};

}  // namespace

TaskPtr AdasumAllreduce(const Fabric& fabric, uint32_t operation, const FusedView& view) {
  auto sum = std::make_shared<std::unique_ptr<std::byte[]>>();
  const auto begin = [&fabric, &view, operation, sum]() -> TaskPtr {
    const size_t each = SizeOf(view.wire());
    const size_t bytes = static_cast<size_t>(view.elements()) * each;
    sum->reset(new std::byte[bytes]);
    view.Pack({0, view.elements()}, sum->get());
    const RailCall call = {operation, 0, {sum->get(), bytes}, view.elements(), view.wire()};
    const auto combine = [&fabric, &view, each](void* into, const void* first, const void* second, int64_t) {
      for (size_t i = 0; i + 1 < view.starts().size(); ++i) {
        const size_t at = static_cast<size_t>(view.starts()[i]) * each;
        Couple couple(fabric.compute, view.wire(), static_cast<const std::byte*>(first) + at,
                      static_cast<const std::byte*>(second) + at, view.starts()[i + 1] - view.starts()[i]);
        couple.AddInto(static_cast<std::byte*>(into) + at);
      }
    };
    const Group& group = fabric.topology.all();
    return RunRounds("adasum", group, fabric.transport, call,
                     NeighboursFirstRounds(group.size(), group.position_of(fabric.topology.rank())), combine);
  };
  const auto end = [&view, sum]() -> TaskPtr {
    view.Unpack({0, view.elements()}, sum->get());
    sum->reset();
    return nullptr;
  };
  return Sequence({begin, end});
}

}  // namespace smddp
