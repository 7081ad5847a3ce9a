#include "runtime/last_words.h"

#include "core/wire.h"
#include "runtime/announcement.h"
#include "runtime/stall_report.h"

namespace smddp {
namespace {

enum class Word : uint8_t { kRaised, kHeard, kShown };

std::string Encode(Word word, const std::string& text = "") {
  WireWriter writer;
  writer.Put(ControlType::kLastWords);
  writer.Put(word);
  writer.PutText(text);
  return writer.Take();
}

}  // namespace

void LastWords::Raise(const std::string& exception) {
  if (raised_) return;
  raised_ = true;
  const Status why(Code::kUnavailable, NamedWithHost(topology_, topology_.rank()) +
                                           " has ended its session, because nobody caught " + exception +
                                           ". Its traceback is in its own output.");
  for (int rank : topology_.world().world_ranks()) {
    if (rank != topology_.rank()) post_(rank, Encode(Word::kRaised, why.message()));
  }
  fail_(why);
}

void LastWords::Shown() {
  for (int rank : topology_.world().world_ranks()) {
    if (rank != topology_.rank()) post_(rank, Encode(Word::kShown));
  }
}

bool LastWords::OnMessage(int from, std::string_view message) {
  WireReader reader(message);
  (void)reader.Get<ControlType>();
  const Word word = reader.Get<Word>();
  const std::string text = reader.GetText();
  if (!reader.at_end()) return false;
  if (word == Word::kRaised && !text.empty()) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (raised_elsewhere_.empty()) raised_elsewhere_ = text;
    }
    fail_(Status(Code::kUnavailable, text));
    post_(from, Encode(Word::kHeard));
    return true;
  }
  if (word == Word::kHeard && text.empty()) {
    ++heard_;
    return true;
  }
  if (word != Word::kShown || !text.empty()) return false;
  shown_elsewhere_ = true;
  return true;
}

std::string LastWords::raised_elsewhere() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return raised_elsewhere_;
}

}  // namespace smddp
