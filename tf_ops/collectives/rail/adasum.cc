#include "collectives/rail/adasum.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "collectives/p2p/rounds_task.h"
#include "collectives/patterns/doubling.h"

namespace smddp {
namespace {

constexpr int64_t kBlock = 1024;
constexpr int64_t kLanes = 8;  // parallel sums, so that the compiler can vectorise
// Division by a squared length below this is not safe; such a vector is added without scaling.
constexpr double kSmallestSquare = 1.5e-154;  // sqrt of the smallest normal float64

constexpr int64_t kBlocksInStep = 64;

// Two packed views, read block by block as float64. Blocks begin at a tensor's beginning, and code is plain with a
// fixed order of operations: a tensor gets the same bits on every processor and in whatever company.
class Couples {
 public:
  Couples(const FusedView& view, void* into, const void* first, const void* second)
      : view_(view), into_(into), first_(first), second_(second), sums_(view.pieces().size()) {
    for (size_t i = 0; i < sums_.size(); ++i) {
      const int64_t elements = view.starts()[i + 1] - view.starts()[i];
      first_block_.push_back(first_block_.back() + (elements + kBlock - 1) / kBlock);
    }
  }

  int64_t blocks() const { return first_block_.back(); }

  // Adds up the products of each tensor's values.
  void Measure(Range blocks) {
    ForEach(blocks, [this](Sums* sums, int64_t, int64_t count) {
      for (int64_t i = count; i % kLanes != 0; ++i) a_[i] = b_[i] = 0;
      for (int64_t i = 0; i < count; i += kLanes) {
        for (int64_t k = 0; k < kLanes; ++k) {
          sums->aa[k] += a_[i + k] * a_[i + k];
          sums->ab[k] += a_[i + k] * b_[i + k];
          sums->bb[k] += b_[i + k] * b_[i + k];
        }
      }
    });
  }

  // When all blocks are measured.
  void Add(Range blocks) {
    ForEach(blocks, [this](Sums* sums, int64_t start, int64_t count) {
      const double of_a = Share(sums->ab, sums->aa), of_b = Share(sums->ab, sums->bb);
      for (int64_t i = 0; i < count; ++i) a_[i] = of_a * a_[i] + of_b * b_[i];
      view_.compute().Cast(ElementAt(into_, start, view_.wire()), view_.wire(), a_, DType::kFloat64, count, Scaling());
    });
  }

 private:
  using Lanes = double[kLanes];
  struct Sums {
    Lanes aa = {}, ab = {}, bb = {};
  };

  static double Share(const Lanes& dots, const Lanes& squares) {
    const double dot = std::accumulate(dots, dots + kLanes, 0.0);
    const double square = std::accumulate(squares, squares + kLanes, 0.0);
    return square < kSmallestSquare ? 1.0 : 1.0 - dot / (2 * square);
  }

  // Calls visit(sums of the tensor, first element in the view, elements) with the block's values in a_ and b_.
  template <class Visit>
  void ForEach(Range blocks, Visit visit) {
    const auto after = std::upper_bound(first_block_.begin(), first_block_.end(), blocks.begin);
    auto tensor = static_cast<size_t>(after - first_block_.begin() - 1);
    for (int64_t block = blocks.begin; block < blocks.end; ++block) {
      if (block == first_block_[tensor + 1]) ++tensor;  // none is empty
      const int64_t start = view_.starts()[tensor] + (block - first_block_[tensor]) * kBlock;
      const int64_t count = std::min(kBlock, view_.starts()[tensor + 1] - start);
      view_.compute().Cast(a_, DType::kFloat64, ElementAt(first_, start, view_.wire()), view_.wire(), count, Scaling());
      view_.compute().Cast(b_, DType::kFloat64, ElementAt(second_, start, view_.wire()), view_.wire(), count,
                           Scaling());
      visit(&sums_[tensor], start, count);
    }
  }

  const FusedView& view_;
  void* const into_;
  const void* const first_;
  const void* const second_;
  std::vector<Sums> sums_;                  // by tensor
  std::vector<int64_t> first_block_ = {0};  // by tensor, and the number of all
  double a_[kBlock], b_[kBlock];
};

TaskPtr AddInSteps(const FusedView& view, void* into, const void* first, const void* second) {
  auto couples = std::make_shared<Couples>(view, into, first, second);
  const auto stage = [couples](void (Couples::*visit)(Range)) {
    return [couples, visit] {
      return InSteps("adasum, adding", couples->blocks(), kBlocksInStep,
                     [couples, visit](Range blocks) { (couples.get()->*visit)(blocks); });
    };
  };
  return Sequence({stage(&Couples::Measure), stage(&Couples::Add)});
}

}  // namespace

TaskPtr AdasumAllreduce(const Fabric& fabric, uint32_t operation, const FusedView& view) {
  auto sum = std::make_shared<std::unique_ptr<std::byte[]>>();
  const size_t bytes = static_cast<size_t>(view.elements()) * SizeOf(view.wire());
  const auto in_steps = [&view](std::function<void(Range)> visit) {
    return InSteps("adasum, copying", view.elements(), kBlocksInStep * kBlock, std::move(visit));
  };
  const auto pack = [&view, sum, bytes, in_steps] {
    sum->reset(new std::byte[bytes]);
    return in_steps([&view, sum](Range range) { view.Pack(range, ElementAt(sum->get(), range.begin, view.wire())); });
  };
  const auto exchange = [&fabric, &view, operation, sum, bytes] {
    const RailCall call = {operation, 0, {sum->get(), bytes}, view.elements(), view.wire()};
    const auto combine = [&view](void* into, const void* first, const void* second, int64_t) {
      return AddInSteps(view, into, first, second);
    };
    const Group& group = fabric.topology.all();
    return RunRounds("adasum", group, fabric.transport, call,
                     NeighboursFirstRounds(group.size(), group.position_of(fabric.topology.rank())), combine);
  };
  const auto unpack = [&view, sum, in_steps] {
    return in_steps([&view, sum](Range range) { view.Unpack(range, ElementAt(sum->get(), range.begin, view.wire())); });
  };
  return Sequence({pack, exchange, unpack});
}

}  // namespace smddp
