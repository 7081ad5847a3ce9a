// The session: everything a framework may ask of the engine. The only header that ops/ and python/ need.
//
// Threads:   every method may be called from any thread and does not wait for another rank, except Start and
//            Shutdown. `done` callbacks run on the engine thread and must be short: hand work over, do not compute.
// Ownership: the memory behind a request belongs to the caller and must live until `done` was called. `done` is
//            called exactly once for every request, also when it is refused or the session ends.
// Errors:    a disagreement between ranks is reported to every rank that takes part, with the same message.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/status.h"
#include "fusion/plan.h"
#include "runtime/api/session_diagnostics.h"
#include "topology/topology.h"
#include "transport/world.h"

namespace smddp {

using DoneCallback = std::function<void(const Status&)>;

class MpiLibrary;
class PooledEvent;

// The engine's description of a framework tensor. `output` may equal `input` (in place).
struct TensorRef {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  const void* input = nullptr;
  void* output = nullptr;
  // Both are on a GPU, in this order with the framework's work (WorkOnDevice); `done` is called when the framework's
  // stream waits for the result, which may not be complete yet. Null: both are in host memory.
  std::shared_ptr<const PooledEvent> device = nullptr;
  Parting parting = {};  // of a plan with parts: `shape` is that of the whole, and one of the two holds a part

  int64_t elements() const { return ElementCount(shape); }
  size_t row_bytes() const;  // of one step along the first dimension
  size_t bytes() const { return static_cast<size_t>(elements()) * SizeOf(dtype); }
};

enum class RequestKind : uint8_t {
  kAllreduce = 0,
  kBroadcast = 1,
  kAllgather = 2,
  kBarrier = 3,
  kPlan = 4,
  kAlltoall = 5,
  kReducescatter = 6,
  kDevices = 7,  // what GPU each rank uses for a plan: Announcement::data, Verdict::devices
};

// What is asked of all ranks under a name: a part of everything that describes it. The arithmetic: kAllreduce,
// kReducescatter, kPlan.
struct Collective : Arithmetic {
  RequestKind kind = RequestKind::kBarrier;
  std::string name;         // unique among the requests in flight; the same on all ranks
  int root = 0;             // kBroadcast: the number that users know, in a process set too the number among all ranks
  bool even_split = false;  // kAlltoall: the same number of rows for each rank; else:
  std::vector<int64_t> splits = {};  // kAlltoall: rows for each rank
};

// Neither of kPlan nor of kDevices, which are the engine's own.
//
//   kAllreduce      reduces every tensor over all ranks; they are reduced together. Shapes and dtypes must agree
//   kReducescatter  the same; `output` has room for my rows (core/slice.h RowsOf), and is not `input`
//   kBroadcast      copies root's tensors to all ranks. On the root input is read; elsewhere only output is written
//   kAllgather      concatenates along dimension 0 in rank order. Only the first dimension may differ between ranks
//   kAlltoall       sends consecutive rows of a tensor to each rank; the result is what came from each, in rank order.
//                   Only the first dimension may differ between ranks
struct Request : Collective {
  Request() = default;
  Request(RequestKind kind, std::string name, std::vector<TensorRef> tensors, const Arithmetic& arithmetic = {})
      : Collective{arithmetic, kind, std::move(name)}, tensors(std::move(tensors)) {}

  std::vector<TensorRef> tensors;  // kAllgather, kAlltoall: `output` is not used
  // Of those two: called on the engine thread once the sizes are known, for each tensor in turn, with the first
  // dimension of every rank's tensor, or the rows that each rank sends; returns the memory for the result, that many
  // rows.
  std::function<Result<void*>(int tensor, const std::vector<int64_t>& rows_of_rank)> allocate;
};

// A gradient that is ready: tensor `index` of a plan.
struct PlannedTensor {
  int plan = 0;
  int index = 0;
  // The index of this use of the plan in the graph that runs: a traced function that is called twice reduces by one
  // plan at two sites, which run at the same time. Numbered from 0, the same on all ranks.
  int site = 0;
  // Is it known that the running graph holds no other plan of the same key? Then the rank uses no other one until
  // this step is over.
  bool alone = false;
  // The execution of the graph that provides the tensor: the same number for all tensors of a step, a different one
  // for each step; 0: not known.
  uint64_t run = 0;
};

class Session {
 public:
  virtual ~Session() = default;

  virtual const Topology& topology() const = 0;

  // The number of a plan; an equal spec gives the same number. Other ranks learn of it when it is first used: ranks
  // whose plans have equal specs and sites reduce together. If a rank uses another spec of the same key at the same
  // time, every tensor of the plan ends with an error.
  virtual Result<int> RegisterPlan(const PlanSpec& spec) = 0;
  // Which of `parts` parts is a rank's (collectives/node/parts.h), or why there cannot be so many.
  virtual Result<int> PlaceInParts(int rank, int parts) = 0;
  // A tensor is ready. Its bucket starts when the bucket's last tensor is ready.
  virtual void ReducePlanned(const PlannedTensor& where, const TensorRef& tensor, DoneCallback done) = 0;

  virtual void Submit(Request request, DoneCallback done) = 0;

  // This rank has no more data: until all ranks have called it, it contributes zeros to the allreduces and plans of
  // the others, whatever their names. Then `*last` is set to the last rank that joined, the same on all ranks, and
  // `done` is called. Requests that are made in between wait until then.
  virtual void Join(int* last, DoneCallback done) = 0;

  // The framework cancelled the step that holds the request `name` (another op of it failed on this rank). The
  // request still ends normally when the other ranks make theirs. When no rank makes progress any more, the session
  // ends with an error on every rank.
  virtual void Cancel(const std::string& name) = 0;
  // The same for a step of a plan. Its tensors that are not ready yet never will be: the step ends with an error on
  // every rank, and the session continues.
  virtual void CancelPlanned(const PlannedTensor& where) = 0;
  // A run of a graph begins that will bring every tensor of `where`'s plan, and the request `name`. What has begun
  // before and brought nothing has failed: it is given up on all ranks, as above.
  virtual void BeginPlanned(const PlannedTensor& where) = 0;
  virtual void Begin(const std::string& name) = 0;

  // What it reports about itself.
  virtual SessionDiagnostics& diagnostics() = 0;
};

// --- The process's session (process.cc). ---

struct StartOptions {
  std::vector<int> ranks;              // world ranks that take part; empty means all
  bool dynamic_process_sets = false;   // as SMDDP_DYNAMIC_PROCESS_SETS
  const void* communicator = nullptr;  // an MPI_Comm owned by the caller, instead of MPI_COMM_WORLD
  // Where the other ranks are, in a job without MPI; without addresses: MPI's world, or this process alone.
  World world;
  // Of other software, which must be the same on all ranks: {"TensorFlow", "2.21.0"}.
  std::vector<std::pair<std::string, std::string>> versions;
  // In which the framework keeps its large tensors, where it is shared memory (transport/shm/tensor_memory.h).
  void* tensor_memory = nullptr;
  size_t tensor_memory_bytes = 0;
  int tensor_memory_file = -1;
};

// Starts the process's session; does nothing when one is running. Waits for the other ranks.
Status StartSession(const StartOptions& options);
// Notifies the other ranks, ends pending requests with an error, stops the engine thread. StartSession may follow.
// `at_exit`: the program ends; waits for the other ranks to end their sessions, as MPI_Finalize would, but not for a
// lost rank. What takes longer than a second goes on until the process's own exit, where a code other than 0 ends it.
Status StopSession(bool at_exit = false);
// Why the running session, and every request with it, has failed: OK when it has not, or when there is no session.
Status SessionFailure();
// The running session of all ranks, or null. Do not keep the pointer beyond a call.
std::shared_ptr<Session> CurrentSession();

// --- Process sets: each has its own session, of some of the ranks (docs/decisions/0011). Number 0 is all ranks.

// The session of a set. kBadState: nothing runs; kBadArgument: there is no such set, or this process is not in it.
Result<std::shared_ptr<Session>> SessionOf(int process_set);

struct ProcessSetSpec {
  std::vector<int> ranks;
  const void* communicator = nullptr;  // an MPI_Comm instead of `ranks`; each rank passes its own
};
// Makes sets and returns their numbers, in the order given; 0 where this process passed MPI_COMM_NULL and several
// sets resulted. Collective over all ranks, which must pass the same lists: a disagreement is an error on every rank,
// and then no set is made. `at_start`: the sets of init, which do not need SMDDP_DYNAMIC_PROCESS_SETS.
Result<std::vector<int>> AddProcessSets(const std::vector<ProcessSetSpec>& specs, bool at_start);
// Ends a set. Collective over all ranks. False when there is no such set.
Result<bool> RemoveProcessSet(int process_set);
// Makes a set by its members alone, which call it together with the same arguments, and each pair of ranks in the same
// order for all such sets. It lasts as long as the session. `number`: from kFirstOwnSet on, of no other set of one of
// these ranks in this session.
constexpr int kFirstOwnSet = 1 << 20;
Status AddOwnProcessSet(const std::vector<int>& ranks, int number);
// The ranks of every existing set that all ranks know, by number.
std::map<int, std::vector<int>> ProcessSets();

// --- MPI, which is loaded only where it is needed. ---

// Is it, for a session with these options: does SMDDP_MPI say so, or has an MPI launcher started this process?
// `is_initialized`: by other code of this process. An error: SMDDP_MPI is invalid.
Result<bool> NeedsMpi(bool has_communicator, bool is_initialized);
// Loads the library at `path` (libsmddp_mpi.so); the MPI that it belongs to is in the process. Does nothing when one is
// loaded.
Status LoadMpi(const std::string& path);
// The MPI that is loaded; without one an object that says so.
MpiLibrary& TheMpi();

// --- Tensors on a GPU ---

// TensorRef::device of tensors in the same memory as `memory`: the engine's work runs after what the framework's
// `stream` (a cudaStream_t) holds now. Does not wait. kBadState: this build, or this machine, has no GPU.
Result<std::shared_ptr<const PooledEvent>> WorkOnDevice(const void* memory, void* stream);

struct DeviceSupport {
  std::string platform;  // "CUDA 13.0"; "" when this build has none
  int count = 0;         // devices that this process sees
  std::string why_none;  // where there are none
  int nccl_version = 0;  // 0: it cannot be used
  std::string why_no_nccl;
};
// Loads the libraries that are available; creates no context on any device.
DeviceSupport FindDevices();

// The error of a call without a session, or in a fork of a process that has one. "Horovod has not been initialized;
// use hvd.init()." is Horovod's text: scripts grep for it. `was_ended`: the process has had a session.
Status NotInitialized(bool was_ended = false);

}  // namespace smddp
