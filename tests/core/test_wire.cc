// core/wire.h, messages as bytes. (test_wire.py is about narrower dtypes between ranks.)
#include "core/wire.h"
#include "native/testing.h"

namespace smddp {
namespace {

struct Inner {
  int32_t number = 0;
  std::string text;
  SMDDP_FIELDS(number, text);
  bool operator==(const Inner& other) const { return number == other.number && text == other.text; }
};

struct Plain {
  bool flag = false;
  int64_t large = 0;
  double real = 0;
  std::string text;
  std::optional<DType> dtype;
  Status status;
  std::pair<int32_t, std::string> both;
  std::vector<int64_t> numbers;
  std::vector<std::string> texts;
  std::vector<Inner> inners;
  std::map<int32_t, std::vector<std::string>> by_number;
  SMDDP_FIELDS(flag, large, real, text, dtype, status, both, numbers, texts, inners, by_number);
  bool IsWellFormed() const { return large >= 0; }
};

Plain Filled() {
  Plain plain;
  plain.flag = true;
  plain.large = int64_t{1} << 40;
  plain.real = -2.5;
  plain.text = std::string("with\0zero", 9);
  plain.dtype = DType::kBFloat16;
  plain.status = Status(Reason::kPeerLost, "Rank 3 is silent.");
  plain.both = {7, "seven"};
  plain.numbers = {1, -2, 3};
  plain.texts = {"", "b", "cc"};
  plain.inners = {{1, "one"}, {-2, ""}};
  plain.by_number = {{-1, {}}, {4, {"x", "y"}}};
  return plain;
}

TEST_CASE("what is encoded is decoded") {
  const Plain sent = Filled();
  Plain got;
  got.numbers = {9, 9};  // is replaced
  REQUIRE(Decode(Encode(sent), &got));
  CHECK(got.flag);
  CHECK(got.large == sent.large);
  CHECK(got.real == sent.real);
  CHECK(got.text == sent.text);
  CHECK(got.dtype == sent.dtype);
  CHECK(got.status.ToString() == "peer_lost: Rank 3 is silent.");
  CHECK(got.both == sent.both);
  CHECK(got.numbers == sent.numbers);
  CHECK(got.texts == sent.texts);
  CHECK((got.inners == sent.inners));
  CHECK((got.by_number == sent.by_number));
}

TEST_CASE("no dtype is another thing than a dtype") {
  Plain sent, got = Filled();
  REQUIRE(Decode(Encode(sent), &got));
  CHECK_FALSE(got.dtype.has_value());
}

TEST_CASE("a message that is cut, or too long, is refused") {
  const std::string bytes = Encode(Filled());
  for (size_t length = 0; length < bytes.size(); ++length) {
    Plain got;
    CHECK_FALSE(Decode(bytes.substr(0, length), &got));
  }
  Plain got;
  CHECK_FALSE(Decode(bytes + '\0', &got));
  CHECK(Decode(bytes, &got));
}

TEST_CASE("values that are not well formed are refused") {
  Plain sent = Filled(), got;
  sent.large = -1;
  CHECK_FALSE(Decode(Encode(sent), &got));
}

TEST_CASE("damaged bytes never do more than make a message unreadable") {
  const std::string bytes = Encode(Filled());
  ForSeeds(2000, [&](Chance& chance) {
    std::string damaged = bytes;
    for (int i = 0; i < 3; ++i) damaged[chance.Below(damaged.size())] = static_cast<char>(chance.Below(256));
    Plain got;
    if (Decode(damaged, &got)) CHECK(got.large >= 0);
  });
}

TEST_CASE("a length beyond the end allocates nothing") {
  FieldWriter writer;
  writer(uint32_t{0xffffffff});
  const std::string bytes = writer.Take();
  FieldReader list(bytes);
  std::vector<int64_t> values;
  list(values);
  CHECK(values.capacity() == 0);
  CHECK_FALSE(list.at_end());
  FieldReader text(bytes);
  std::string words = "before";
  int32_t number = 1;
  text(words, number);
  CHECK(words.empty());
  CHECK_FALSE(text.at_end());
  CHECK(number == 0);  // and all that follows is zero
}

struct Ended {
  Status status;
  SMDDP_FIELDS(status);
};

TEST_CASE("an unknown reason of another rank is an internal error") {
  FieldWriter writer;
  writer(uint8_t{200}, std::string("of a later version"));
  Ended ended;
  REQUIRE(Decode(writer.Take(), &ended));
  CHECK(ended.status.ToString() == "internal: of a later version");
}

enum class Kind : uint8_t { kOne = 1, kTwo = 2 };
struct One {
  static constexpr Kind kType = Kind::kOne;
  int32_t number = 0;
  SMDDP_FIELDS(number);
};
struct Two {
  static constexpr Kind kType = Kind::kTwo;
  int32_t number = 0;
  SMDDP_FIELDS(number);
};

TEST_CASE("a control message is not taken for one of another type") {
  One one;
  one.number = 77;
  const std::string bytes = Encode(one);
  CHECK(bytes.size() == 5);
  One again;
  Two other;
  CHECK(Decode(bytes, &again));
  CHECK(again.number == 77);
  CHECK_FALSE(Decode(bytes, &other));
  CHECK(other.number == 0);
}

}  // namespace
}  // namespace smddp
