#include "runtime/verify.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "collectives/p2p/allgather.h"
#include "core/checksum.h"
#include "core/log.h"

namespace smddp {
namespace {

constexpr uint64_t kFan = 16;        // pieces that are looked at in one exchange
constexpr size_t kElementWords = 2;  // the largest element has 16 bytes
constexpr size_t kNarrowWords = 2 * (kFan + kElementWords);

// Words of equal number from every rank to every rank, and a checksum of them. What damages tensors may damage these,
// and ranks that conclude differently would wait for one another.
class WordExchange {
 public:
  WordExchange(const Fabric& fabric, size_t words) : fabric_(fabric), each_(words + 1) {
    words_.resize(each_ * fabric.topology.size());
  }
  uint64_t* mine() { return &words_[each_ * fabric_.topology.rank()]; }
  const uint64_t* of(int rank) const { return &words_[each_ * rank]; }
  // Those of all ranks, without the checksums.
  std::vector<uint64_t> All() const {
    std::vector<uint64_t> all;
    all.reserve(words_.size());
    for (int rank = 0; rank < fabric_.topology.size(); ++rank) all.insert(all.end(), of(rank), of(rank) + each_ - 1);
    return all;
  }
  void Seal() { mine()[each_ - 1] = SumOf(mine()); }
  // A rank whose words did not come as it sent them; -1: none.
  int Damaged() const {
    for (int rank = 0; rank < fabric_.topology.size(); ++rank) {
      if (of(rank)[each_ - 1] != SumOf(of(rank))) return rank;
    }
    return -1;
  }
  TaskPtr Begin(uint32_t operation) {
    std::vector<BufferView> blocks;
    for (int rank = 0; rank < fabric_.topology.size(); ++rank) {
      blocks.emplace_back(words_.data() + each_ * rank, each_ * sizeof(uint64_t));
    }
    return RingAllgather(fabric_, operation, std::move(blocks));
  }

 private:
  uint64_t SumOf(const uint64_t* words) const { return ChecksumOf(words, (each_ - 1) * sizeof(uint64_t)); }

  const Fabric& fabric_;
  const size_t each_;
  std::vector<uint64_t> words_;
};

// Elements begin ... end - 1 of the two cells, among which is the first that differs.
struct Narrowing {
  Difference difference;
  uint64_t begin = 0, end = 0;

  uint64_t width() const { return (end - begin + kFan - 1) / kFan; }
  Range piece(uint64_t index) const {
    const auto at = [&](uint64_t i) { return static_cast<int64_t>(std::min(end, begin + i * width())); };
    return {at(index), at(index + 1)};
  }
};

// When the call has so many bits.
void FlipOnce(Verification* verification, FlippedBit* flip) {
  if (!flip->wanted() || !verification->Flip(*flip)) return;
  Log(LogLevel::kWarning, "SMDDP_TEST_FLIP_BIT: one bit of " + verification->name() + " has been changed.");
  *flip = FlippedBit();
}

class VerifiedTask : public Task {
 public:
  VerifiedTask(VerificationPtr verification, uint32_t operation, TaskPtr task, FlippedBit* flip)
      : verification_(std::move(verification)), operation_(operation), running_(std::move(task)), flip_(flip) {}

  Result<Progress> Step() override {
    if (running_ != nullptr) {
      SMDDP_ASSIGN_OR_RETURN(const Progress progress, running_->Step());
      if (progress != Progress::kDone) return progress;
      running_.reset();
      const int damaged = exchange_ != nullptr ? exchange_->Damaged() : -1;
      if (damaged >= 0) {
        return Failure("the checksums of rank " + std::to_string(verification_->KnownAs(damaged)) +
                       " did not come as they were sent");
      }
    }
    switch (phase_) {
      case Phase::kOperation:
        return AfterOperation();
      case Phase::kRecords:
        return AfterRecords();
      default:
        return AfterNarrowing();
    }
  }
  std::string Describe() const override {
    const std::string what = running_ != nullptr ? running_->Describe() : "between two steps";
    return phase_ == Phase::kOperation ? what : "SMDDP_VERIFY, " + what;
  }

 private:
  enum class Phase { kOperation, kRecords, kNarrowing };

  void Exchange(Phase phase, size_t words) {
    phase_ = phase;
    exchange_ = std::make_unique<WordExchange>(verification_->fabric(), words);
  }

  Result<Progress> AfterOperation() {
    if (flip_ != nullptr && flip_->of == FlippedBit::Of::kOutput) FlipOnce(verification_.get(), flip_);
    verification_->SampleOutputs();
    Exchange(Phase::kRecords, verification_->record_words());
    verification_->WriteRecord(exchange_->mine());
    exchange_->Seal();
    if (flip_ != nullptr && flip_->of == FlippedBit::Of::kRecord) {
      *exchange_->mine() ^= uint64_t{1} << (flip_->bit % 64);
      *flip_ = FlippedBit();
    }
    running_ = exchange_->Begin(operation_);
    return Progress::kMoved;
  }

  Result<Progress> AfterRecords() {
    const std::vector<uint64_t> records = exchange_->All();
    std::optional<Difference> found = verification_->FindDifference(records);
    if (found) return BeginNarrowing(std::move(*found));
    const std::string wrong = verification_->FindWrongSum(records);
    if (wrong.empty()) return Progress::kDone;
    return Failure(wrong);
  }

  Result<Progress> BeginNarrowing(Difference difference) {
    const uint64_t element = SizeOf(verification_->dtype_of(difference));
    const uint64_t first = difference.first_bytes / element, other = difference.other_bytes / element;
    range_ = {std::move(difference), 0, first};
    if (first != other) {
      return Failure(Where() + " has " + std::to_string(first) + " elements in " + First() + " and " +
                     std::to_string(other) + " in " + Other());
    }
    Narrow();
    return Progress::kMoved;
  }

  void Narrow() {
    Exchange(Phase::kNarrowing, kNarrowWords);
    const Difference& difference = range_.difference;
    const int me = verification_->fabric().topology.rank();
    uint64_t* words = exchange_->mine();
    if (me == difference.first_rank) Look(difference.first_cell, words);
    if (me == difference.other_rank) Look(difference.other_cell, words + kFan + kElementWords);
    exchange_->Seal();
    running_ = exchange_->Begin(operation_);
  }

  // At a cell of mine. The range comes from the records.
  void Look(int cell, uint64_t* words) const {
    const size_t element = SizeOf(verification_->dtype_of(range_.difference));
    if (range_.end * element > verification_->cell(cell).bytes || range_.begin >= range_.end) return;
    for (uint64_t i = 0; i < kFan; ++i) {
      const Range piece = range_.piece(i);
      words[i] = piece.empty() ? 0 : verification_->ChecksumOfRange(cell, piece.begin, piece.end);
    }
    std::memcpy(words + kFan, verification_->cell(cell).data + range_.begin * element, element);
  }

  Result<Progress> AfterNarrowing() {
    const uint64_t* first = exchange_->of(range_.difference.first_rank);
    const uint64_t* other = exchange_->of(range_.difference.other_rank) + kFan + kElementWords;
    const auto differs = std::mismatch(first, first + kFan, other);
    if (differs.first == first + kFan) {
      return Failure(Where() + " was not the same in " + First() + " and in " + Other() +
                     " and is when it is read again: memory gives other bytes at times, or something wrote to it while "
                     "the operation was under way");
    }
    if (range_.end - range_.begin == 1) return Failure(DescribeElement(first + kFan, other + kFan));
    const Range piece = range_.piece(differs.first - first);
    range_.begin = piece.begin;
    range_.end = piece.end;
    Narrow();
    return Progress::kMoved;
  }

  std::string DescribeElement(const uint64_t* first, const uint64_t* other) const {
    const DType dtype = verification_->dtype_of(range_.difference);
    const Compute& compute = verification_->fabric().compute;
    std::string others;
    for (const int rank : range_.difference.others) {
      others += (others.empty() ? "" : ", ") + std::to_string(verification_->KnownAs(rank));
    }
    return "element " + std::to_string(range_.begin) + " of " + Where() + " is " + ElementText(first, dtype, compute) +
           " in " + First() + " and " + ElementText(other, dtype, compute) + " in " + Other() +
           ", the first that differs. Unlike " + First() + ": rank " + others + " (of " +
           std::to_string(verification_->fabric().topology.size()) + " ranks)";
  }

  std::string Where() const {
    const Difference& difference = range_.difference;
    return verification_->DescribeBlock(difference) + verification_->DescribeTensor(difference.tensor);
  }
  std::string First() const {
    return verification_->DescribeCell(range_.difference.first_rank, range_.difference.first_cell);
  }
  std::string Other() const {
    return verification_->DescribeCell(range_.difference.other_rank, range_.difference.other_cell);
  }

  Status Failure(const std::string& what) const {
    return Status(Code::kDataLoss,
                  "SMDDP_VERIFY: " + verification_->name() + " gave a wrong result: " + what +
                      ". Memory, a processor or a link changed it, or smddp_tf has a bug. No rank has been given the "
                      "result; what came before it was checked. Start again from the last checkpoint, and without "
                      "a host that is named more than once.");
  }

  const VerificationPtr verification_;
  const uint32_t operation_;
  std::unique_ptr<WordExchange> exchange_;  // before what refers to it
  TaskPtr running_;                         // null: nothing to wait for
  FlippedBit* const flip_;                  // may be null
  Phase phase_ = Phase::kOperation;
  Narrowing range_;
};

}  // namespace

Result<TaskPtr> Verifier::Begin(VerificationPtr verification, uint32_t operation,
                                const std::function<Result<TaskPtr>()>& begin) {
  if (verification == nullptr) return begin();
  verification->SampleInputs();
  const bool named = verification->name().find(flip_.name) != std::string::npos;
  FlippedBit* const flip = flip_.wanted() && named ? &flip_ : nullptr;
  if (flip != nullptr && flip->of == FlippedBit::Of::kInput) FlipOnce(verification.get(), flip);
  SMDDP_ASSIGN_OR_RETURN(TaskPtr task, begin());
  return TaskPtr(std::make_unique<VerifiedTask>(std::move(verification), operation, std::move(task), flip));
}

}  // namespace smddp
