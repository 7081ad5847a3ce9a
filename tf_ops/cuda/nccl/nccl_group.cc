#include "cuda/nccl/nccl_group.h"

#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "core/process/log.h"
#include "cuda/nccl/nccl_errors.h"

namespace smddp {
namespace {

using std::chrono::steady_clock;
constexpr auto kPeace = std::chrono::seconds(5);      // for calls under way
constexpr auto kPatience = std::chrono::seconds(10);  // for the whole shutdown
constexpr auto kPause = std::chrono::milliseconds(1);

nccl::Type TypeOf(DType dtype) {
  constexpr nccl::Type kTypes[] = {nccl::Type::kFloat16, nccl::Type::kBFloat16, nccl::Type::kFloat32,
                                   nccl::Type::kFloat64};
  return kTypes[static_cast<int>(dtype) - static_cast<int>(DType::kFloat16)];
}

// Finalize, then Destroy; with a deadline. False: not completed.
bool EndInPeace(const nccl::Api& api, nccl::Comm comm) {
  const auto end = steady_clock::now() + kPeace;
  nccl::Result result = api.CommFinalize(comm);
  while (result == nccl::Result::kSuccess || result == nccl::Result::kInProgress) {
    nccl::Result state = nccl::Result::kSuccess;
    result = api.CommGetAsyncError(comm, &state);
    if (result == nccl::Result::kSuccess) result = state;
    if (result == nccl::Result::kSuccess) return api.CommDestroy(comm) == nccl::Result::kSuccess;
    if (steady_clock::now() > end) return false;
    std::this_thread::sleep_for(kPause);
  }
  return false;
}

// NCCL can hang in any of these calls, so they run on their own thread. A thread that does not return is abandoned.
void End(const nccl::Api& api, nccl::Comm comm, bool in_peace, const Device& device) {
  const auto done = std::make_shared<std::promise<void>>();
  std::thread thread([done, &api, comm, in_peace, &device] {
    device.RunCurrent([&] {
      if (!in_peace || !EndInPeace(api, comm)) api.CommAbort(comm);
    });
    done->set_value();
  });
  if (done->get_future().wait_for(kPatience) == std::future_status::ready) return thread.join();
  thread.detach();
  Log(LogLevel::kWarning, "NCCL did not destroy a communicator within 10 s; the communicator is abandoned.");
}

}  // namespace

NcclGroup::~NcclGroup() {
  if (comm_ != nullptr) End(api_, comm_, state_ == State::kReady, device_);
}

Status NcclGroup::Join(const nccl::UniqueId& id) {
  nccl::Config config;
  nccl::Result result = nccl::Result::kSuccess;
  device_.RunCurrent([&] { result = api_.CommInitRankConfig(&comm_, size_, id, member_, &config); });
  return Called(call_, result);
}

Result<bool> NcclGroup::Ready() {
  if (state_ == State::kBusy) SMDDP_RETURN_IF_ERROR(Look());
  if (state_ == State::kBusy) return false;
  SMDDP_RETURN_IF_ERROR(CheckReady());
  return true;
}

Status NcclGroup::Call(const std::vector<GroupCall>& calls, DeviceStream stream) {
  SMDDP_RETURN_IF_ERROR(CheckReady());
  for (const GroupCall& call : calls) {
    if (IsFloating(call.dtype)) continue;
    return Status(Reason::kBadArgument, "NCCL is used for floating dtypes only. Received: ", NameOf(call.dtype), ".");
  }
  nccl::Result result = nccl::Result::kSuccess;
  device_.RunCurrent([&] {
    result = api_.GroupStart();
    for (auto call = calls.begin(); call != calls.end() && result == nccl::Result::kSuccess; ++call) {
      if (call->each > 0) result = Enqueue(*call, stream);
    }
    // Also after an error: the group is the thread's, and other communicators' calls would become part of it.
    const nccl::Result ended = api_.GroupEnd();
    if (result == nccl::Result::kSuccess) result = ended;
  });
  return Called(call_, result);
}

nccl::Result NcclGroup::Enqueue(const GroupCall& call, DeviceStream stream) {
  const auto each = static_cast<size_t>(call.each);
  const nccl::Type type = TypeOf(call.dtype);
  if (call.kind == GroupCall::Kind::kAllgather) {
    call_ = "ncclAllGather";
    return api_.AllGather(call.from, call.into, each, type, comm_, stream);
  }
  const bool to_all = call.kind == GroupCall::Kind::kAllreduce;
  call_ = to_all ? "ncclAllReduce" : "ncclReduceScatter";
  const auto sum = to_all ? api_.AllReduce : api_.ReduceScatter;
  return sum(call.from, call.into, each, type, nccl::Op::kSum, comm_, stream);
}

void NcclGroup::Abort() {
  if (comm_ != nullptr) End(api_, comm_, false, device_);
  comm_ = nullptr;
  state_ = State::kEnded;
}

Status NcclGroup::CheckReady() {
  if (state_ == State::kReady) return Status::Ok();
  if (state_ == State::kFailed) return failure_;
  if (state_ == State::kEnded) return Status(Reason::kBadState, "The NCCL communicator was aborted.");
  return Status(Reason::kBadState, "NCCL has not completed ", call_, ": wait for Ready.");
}

Status NcclGroup::Look() {
  nccl::Result state = nccl::Result::kSuccess;
  const nccl::Result asked = api_.CommGetAsyncError(comm_, &state);
  return asked == nccl::Result::kSuccess ? Called(call_, state) : Called("ncclCommGetAsyncError", asked);
}

Status NcclGroup::Called(const char* call, nccl::Result result) {
  failure_ = NcclStatus(api_, call, result, comm_);
  call_ = call;
  state_ = !failure_.ok() ? State::kFailed : result == nccl::Result::kInProgress ? State::kBusy : State::kReady;
  return failure_;
}

}  // namespace smddp
