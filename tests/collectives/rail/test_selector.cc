// Which algorithm is chosen between nodes: pure functions.
#include "collectives/rail/selector.h"
#include "native/testing.h"

namespace smddp {
namespace {

constexpr int64_t kMib = 1 << 20;
constexpr LinkSpeed kFast = {5e-6, 1e-6, 10e9};
constexpr LinkSpeed kSlow = {300e-6, 5e-6, 12.5e6};
constexpr LinkSpeed kRound = {0.5, 0.01, 1000.0};  // parts of a sum that are told apart

std::string Chosen(int members, int64_t bytes, const LinkSpeed& link, DType dtype = DType::kFloat32, int rails = 1,
                   bool places_vary = false) {
  return ChooseAlgorithm({members, rails, bytes, 0, dtype, places_vary}, link).name;
}
double Predicted(const char* name, int members, int64_t bytes, const LinkSpeed& link, int64_t chunk_bytes = 0) {
  return PredictSeconds(*AlgorithmByName(name), {members, 1, bytes, chunk_bytes}, link);
}

TEST_CASE("selector: a prediction is the sum of its three parts") {
  for (const AllreduceAlgorithm* algorithm : Algorithms()) {
    for (const int members : {2, 3, 8, 64}) {
      for (const int64_t bytes : {int64_t{4}, kMib}) {
        const AlgorithmCost cost = algorithm->cost(members);
        const double expected = 0.5 * cost.steps + 0.01 * cost.messages + cost.traffic * bytes / 1000.0;
        CHECK(Predicted(algorithm->name, members, bytes, kRound) == doctest::Approx(expected).epsilon(1e-6));
      }
    }
  }
}

TEST_CASE("selector: chunks cost their messages and wait together, eight at a time") {
  for (const AllreduceAlgorithm* algorithm : Algorithms()) {
    const AlgorithmCost cost = algorithm->cost(8);
    for (const auto& [chunks, waits] : {std::pair{1, 1}, {8, 1}, {9, 2}, {40, 5}}) {
      const double parts = 0.5 * cost.steps * waits + 0.01 * cost.messages * chunks + cost.traffic * chunks * 4.096;
      const double seconds = Predicted(algorithm->name, 8, chunks * 4096, kRound, 4096);
      CHECK(seconds == doctest::Approx(parts).epsilon(1e-6));
    }
  }
}

TEST_CASE("selector: large sums take the direct exchange on a fast network") {
  // Of more than 8 members where they are no power of two: the doubling algorithms send more then.
  for (const int members : {2, 3, 4, 7, 9, 12}) CHECK(Chosen(members, 25 * kMib, kFast) == "direct");
}

TEST_CASE("selector: many flows are avoided where that costs no bytes") {
  for (const int members : {8, 16, 64}) CHECK(Chosen(members, 25 * kMib, kFast) == "halving_doubling");
}

TEST_CASE("selector: large sums of a few nodes go round on a slow network") {
  for (const int members : {2, 3, 16, 17}) {
    for (const int64_t bytes : {int64_t{1024}, 25 * kMib}) {
      const bool goes_round = bytes > 1024 && (members == 3 || members == 16);
      CHECK((Chosen(members, bytes, kSlow) == "ring") == goes_round);
    }
  }
}

TEST_CASE("selector: the rails of a node share its link") {
  // The same rail bandwidth is that of a slow node with one rail, and of a fast one with eight.
  const LinkSpeed link = {kFast.latency_s, kFast.message_s, 0.15e9};
  CHECK(Chosen(4, 25 * kMib, link, DType::kFloat32, 1) == "ring");
  CHECK(Chosen(4, 25 * kMib, link, DType::kFloat32, 8) == "direct");
}

TEST_CASE("selector: small sums take the fewest steps and messages") {
  CHECK(Chosen(2, 64, kFast) == "recursive_doubling");
  CHECK(Chosen(2, 64, kSlow) == "recursive_doubling");
  CHECK(Chosen(4, 64, kFast) == "recursive_doubling");
}

TEST_CASE("selector: many nodes take the one with few messages") {
  // 126 messages to 63 peers cost more than 12 messages of the same bytes in all.
  CHECK(Chosen(64, kMib, {2e-6, 2e-6, 10e9}) == "halving_doubling");
}

TEST_CASE("selector: what counts is the piece of a chunk that a message holds") {
  // 64 nodes of 8 ranks, 100 MiB in chunks of 2 MiB.
  const LinkSpeed link = {5e-6, 1e-6, 12.5e9 / 8};
  const int64_t of_rail = 100 * kMib / 8;
  for (const auto& [chunk_bytes, saves] : {std::pair{int64_t{0}, false}, {2 * kMib / 8, true}}) {
    const double direct = Predicted("direct", 64, of_rail, link, chunk_bytes);
    const double halving = Predicted("halving_doubling", 64, of_rail, link, chunk_bytes);
    CHECK((halving < 0.9 * direct) == saves);
  }
}

TEST_CASE("selector: half types keep the order that rounds once") {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (const int members : {2, 3, 4, 64}) {
      for (const int64_t bytes : {int64_t{2}, kMib}) {
        CHECK(Chosen(members, bytes, kFast, dtype) == "direct");
        CHECK(Chosen(members, bytes, kSlow, dtype) == "direct");
      }
    }
  }
}

TEST_CASE("selector: on a fast network all choices give the same bits") {
  // Ring sums in another order; no noise in what was measured may bring it in.
  for (const int members : {2, 3, 5, 8, 64, 512}) {
    for (int exponent = 2; exponent < 30; exponent += 3) {
      for (const double noise : {0.5, 1.0, 2.0}) {
        const LinkSpeed link = {noise * kFast.latency_s, noise * kFast.message_s, noise * kFast.bytes_per_s};
        CHECK(Chosen(members, int64_t{1} << exponent, link) != "ring");
      }
    }
  }
}

TEST_CASE("selector: a slight advantage does not count") {
  // At 2 members both send as many bytes: recursive doubling saves one step of many.
  CHECK(Chosen(2, kMib, {1e-6, 0, 1e9}) == "direct");
  CHECK(Chosen(2, kMib, {1e-2, 0, 1e9}) == "recursive_doubling");
}

TEST_CASE("selector: plans whose layout may vary never go round by themselves") {
  CHECK(Chosen(4, 25 * kMib, kSlow) == "ring");
  CHECK(Chosen(4, 25 * kMib, kSlow, DType::kFloat32, 1, true) == "direct");
}

}  // namespace
}  // namespace smddp
