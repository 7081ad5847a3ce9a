// Who tells whom at the end of a program. (test_departures.py does it with whole jobs.)
#include "native/testing.h"
#include "runtime/health/departures.h"

namespace smddp {
namespace {

constexpr int64_t kSecond = 1000 * 1000000LL;
const std::vector<std::string> kHosts = {"a", "a", "b", "b", "c", "c"};

Goodbye Bye(bool clean, bool listens, std::vector<int> told = {}) {
  Goodbye goodbye;
  goodbye.clean = clean;
  goodbye.listens = listens;
  goodbye.told = std::move(told);
  return goodbye;
}
// "1,2 hear of 3" for each forward.
std::vector<std::string> Texts(const std::vector<Departures::Forward>& forwards) {
  std::vector<std::string> texts;
  for (const auto& [to, what] : forwards) {
    std::string text;
    for (const int rank : to) text += std::to_string(rank) + " ";
    text += "hear of";
    for (const auto& [rank, goodbye] : what.ranks) text += " " + std::to_string(rank);
    texts.push_back(text);
  }
  return texts;
}

struct Rank {
  explicit Rank(int rank) : topology(Value(Topology::Build(rank, kHosts))), departures(topology) {}
  std::vector<std::string> Add(int rank, const Goodbye& goodbye) {
    return Texts(departures.Add(rank, goodbye, kSecond));
  }
  const Topology topology;
  Departures departures;
};

using Lines = std::vector<std::string>;

TEST_CASE("departures: the reader of a node tells the other readers of its mates, and its mates of others") {
  Rank reader(2);
  CHECK(reader.Add(3, Bye(true, true)) == Lines{"0 4 hear of 3"});
  CHECK(reader.Add(1, Bye(true, true)) == Lines{"3 hear of 1"});  // the mate still reads
  Rank other(3);
  CHECK(other.Add(2, Bye(true, true)).empty());  // it has left, but still is the reader
  CHECK(other.Add(0, Bye(true, true)).empty());
}

TEST_CASE("departures: those that the leaving rank has told are not told again") {
  Rank reader(2);
  CHECK(reader.Add(3, Bye(true, true, {4})) == Lines{"0 hear of 3"});
  CHECK(reader.Add(1, Bye(true, true, {3})).empty());
}

TEST_CASE("departures: the next reader is told, and tells, what the one before may have kept to itself") {
  Rank next(3);
  next.Add(0, Bye(true, true));
  next.Add(5, Bye(true, true));
  next.Add(2, Bye(true, false));  // the reader of its own node reads no more
  CHECK_FALSE(next.departures.listens(2));
  Rank far(0);
  far.Add(1, Bye(true, true));
  CHECK(far.Add(2, Bye(true, false)) == Lines{"3 hear of 1"});  // what rank 2 may not have passed on
}

TEST_CASE("departures: all have left when every other rank has") {
  Rank rank(0);
  for (const int other : {1, 2, 3, 4}) {
    rank.Add(other, Bye(true, true));
    CHECK_FALSE(rank.departures.all_left());
  }
  rank.Add(0, Bye(true, true));  // this one does not count
  CHECK_FALSE(rank.departures.all_left());
  rank.Add(5, Bye(true, true));
  CHECK(rank.departures.all_left());
}

TEST_CASE("departures: messages that were under way have arrived a second later") {
  Rank rank(0);
  rank.Add(3, Bye(false, false));
  CHECK(rank.departures.has(3));
  CHECK_FALSE(rank.departures.has(2));
  CHECK(rank.departures.Silent(kSecond + kSecond / 2).empty());
  CHECK(rank.departures.Silent(2 * kSecond + 1) == std::vector<int>{3});
  CHECK(Begins(rank.departures.Sentence(3), "Rank 3 has ended its session"));
}

}  // namespace
}  // namespace smddp
