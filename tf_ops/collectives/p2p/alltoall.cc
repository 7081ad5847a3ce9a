#include "collectives/p2p/alltoall.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "collectives/transfers.h"
#include "core/shape.h"

namespace smddp {
namespace {

constexpr uint8_t kRowCountsStage = 0;
constexpr uint8_t kRowsStage = 1;
constexpr int kRoundsInFlight = 4;

// Block r of `out` goes to rank r; block r of `in` comes from rank r. My own block is copied.
TaskPtr Exchange(const Fabric& fabric, Tag tag, std::vector<BufferView> out, std::vector<BufferView> in) {
  const int size = fabric.topology.size(), me = fabric.topology.rank();
  std::vector<TaskPtr> both;
  if (TaskPtr mine = Copy(in[me], out[me].data)) both.push_back(std::move(mine));
  const auto round = [&fabric, tag, size, me, out = std::move(out), in = std::move(in)](int index) {
    const int to = (me + index + 1) % size, from = (me + size - index - 1) % size;
    return InStages("alltoall", fabric.transport, {[=, out = out[to], in = in[from]](Transfers* transfers) {
                      SMDDP_RETURN_IF_ERROR(transfers->Recv(from, tag, in));
                      return transfers->Send(to, tag, out);
                    }});
  };
  both.push_back(Pipeline(size - 1, kRoundsInFlight, round));
  return Parallel(std::move(both));
}

// Consecutive blocks of `rows[r]` rows.
std::vector<BufferView> Blocks(const void* base, const std::vector<int64_t>& rows, size_t row_bytes) {
  std::vector<BufferView> blocks;
  std::byte* at = static_cast<std::byte*>(const_cast<void*>(base));
  for (int64_t count : rows) {
    blocks.emplace_back(at, static_cast<size_t>(count) * row_bytes);
    at += blocks.back().size;
  }
  return blocks;
}

Status CheckRows(const Fabric& fabric, const std::vector<int64_t>& received, size_t row_bytes) {
  const int64_t most = kMaxElements / std::max<int64_t>(1, static_cast<int64_t>(row_bytes));
  for (size_t rank = 0; rank < received.size(); ++rank) {
    if (received[rank] >= 0 && received[rank] <= most) continue;
    return OtherVersion("Rank ", fabric.topology.global_rank(static_cast<int>(rank)), " wants to send ", received[rank],
                        " rows in an alltoall");
  }
  return Status::Ok();
}

}  // namespace

TaskPtr PairwiseAlltoall(const Fabric& fabric, AlltoallCall alltoall) {
  const auto received = std::make_shared<std::vector<int64_t>>(alltoall.splits.size());  // rows from each rank
  const auto call = std::make_shared<const AlltoallCall>(std::move(alltoall));
  const auto exchange_counts = [&fabric, call, received] {
    const std::vector<int64_t> one(received->size(), 1);
    return Exchange(fabric, {call->operation, kRowCountsStage, 0}, Blocks(call->splits.data(), one, sizeof(int64_t)),
                    Blocks(received->data(), one, sizeof(int64_t)));
  };
  const auto exchange_rows = [&fabric, call, received]() -> Result<TaskPtr> {
    SMDDP_RETURN_IF_ERROR(CheckRows(fabric, *received, call->row_bytes));
    SMDDP_ASSIGN_OR_RETURN(void* result, call->allocate(*received));
    return Exchange(fabric, {call->operation, kRowsStage, 0}, Blocks(call->input, call->splits, call->row_bytes),
                    Blocks(result, *received, call->row_bytes));
  };
  return Sequence({exchange_counts, exchange_rows});
}

}  // namespace smddp
