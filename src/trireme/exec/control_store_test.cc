#include "trireme/exec/control_store.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

ControlMessage request(MessageKind kind, std::vector<std::string> texts, int64_t number = 0,
                       uint32_t id = 1) {
  return {.kind = kind, .request = id, .number = number, .texts = std::move(texts)};
}

// "asker/request: number text", one an answer.
std::string text_of(const std::vector<StoreAnswer>& answers) {
  std::string text;
  for (const StoreAnswer& answer : answers) {
    if (!text.empty()) text += "; ";
    text += std::to_string(answer.asker) + "/" + std::to_string(answer.reply.request) + ": " +
            std::to_string(answer.reply.number);
    for (const std::string& each : answer.reply.texts) text += " " + each;
  }
  return text;
}

using enum MessageKind;

TEST(ControlStore, AddCountsFromZeroAndStoresDecimalText) {
  ControlStore store;
  EXPECT_EQ(text_of(store.serve(1, request(kAdd, {"n"}, 3))), "1/1: 3");
  EXPECT_EQ(text_of(store.serve(2, request(kAdd, {"n"}, -5))), "2/1: -2");
  EXPECT_EQ(text_of(store.serve(2, request(kGet, {"n"}))), "2/1: 0 -2");
}

TEST(ControlStore, AddRefusesAValueThatIsNoNumber) {
  ControlStore store;
  EXPECT_EQ(text_of(store.serve(1, request(kSet, {"k", "12 apples"}))), "1/1: 0");
  const auto answers = store.serve(1, request(kAdd, {"k"}, 1));
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].reply.kind, kReplyError);
  EXPECT_EQ(answers[0].reply.texts[0],
            "key k of the store holds 9 bytes that are no number to add to");
}

TEST(ControlStore, GetAndWaitAreAnsweredWhenTheLastKeyComes) {
  ControlStore store;
  EXPECT_EQ(text_of(store.serve(1, request(kGet, {"a"}, 0, 7))), "");
  EXPECT_EQ(text_of(store.serve(2, request(kWait, {"a", "b"}, 0, 8))), "");
  EXPECT_EQ(text_of(store.serve(3, request(kSet, {"a", "x"}))), "3/1: 0; 1/7: 0 x");
  EXPECT_EQ(text_of(store.serve(3, request(kAdd, {"b"}, 1))), "3/1: 1; 2/8: 0");
  EXPECT_EQ(store.num_waiting(), 0U);
}

TEST(ControlStore, CompareSetWakesWaitersAsWell) {
  ControlStore store;
  EXPECT_EQ(text_of(store.serve(1, request(kGet, {"k"}, 0, 7))), "");
  EXPECT_EQ(text_of(store.serve(2, request(kCompareSet, {"k", "", "v"}))), "2/1: 0 v; 1/7: 0 v");
}

TEST(ControlStore, CompareSetAnswersWhatIsThereNow) {
  ControlStore store;
  EXPECT_EQ(text_of(store.serve(1, request(kCompareSet, {"k", "old", "new"}))), "1/1: 0 old");
  EXPECT_EQ(text_of(store.serve(1, request(kCheck, {"k"}))), "1/1: 0");
  EXPECT_EQ(text_of(store.serve(1, request(kCompareSet, {"k", "", "one"}))), "1/1: 0 one");
  EXPECT_EQ(text_of(store.serve(1, request(kCompareSet, {"k", "zero", "two"}))), "1/1: 0 one");
  EXPECT_EQ(text_of(store.serve(1, request(kCompareSet, {"k", "one", "two"}))), "1/1: 0 two");
}

TEST(ControlStore, CheckDeleteAndCountSeeWhatIsThere) {
  ControlStore store;
  EXPECT_EQ(text_of(store.serve(1, request(kSet, {"a", ""}))), "1/1: 0");
  EXPECT_EQ(text_of(store.serve(1, request(kCheck, {"a"}))), "1/1: 1");
  EXPECT_EQ(text_of(store.serve(1, request(kCheck, {"a", "b"}))), "1/1: 0");
  EXPECT_EQ(text_of(store.serve(1, request(kNumKeys, {}))), "1/1: 1");
  EXPECT_EQ(text_of(store.serve(1, request(kDelete, {"a"}))), "1/1: 1");
  EXPECT_EQ(text_of(store.serve(1, request(kDelete, {"a"}))), "1/1: 0");
  EXPECT_EQ(text_of(store.serve(1, request(kNumKeys, {}))), "1/1: 0");
}

TEST(ControlStore, AWaitThatIsCancelledOrWhoseAskerIsGoneIsNotAnswered) {
  ControlStore store;
  EXPECT_EQ(text_of(store.serve(1, request(kGet, {"a"}, 0, 7))), "");
  EXPECT_EQ(text_of(store.serve(1, request(kGet, {"a"}, 0, 8))), "");
  EXPECT_EQ(text_of(store.serve(2, request(kGet, {"a"}, 0, 7))), "");
  EXPECT_EQ(text_of(store.serve(1, request(kCancel, {}, 0, 7))), "");
  store.forget(2);
  EXPECT_EQ(text_of(store.serve(3, request(kSet, {"a", "x"}))), "3/1: 0; 1/8: 0 x");
}

}  // namespace
}  // namespace trireme
