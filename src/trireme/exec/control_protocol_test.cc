#include "trireme/exec/control_protocol.h"

#include <cstdlib>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme {
namespace {

ControlMessage compare_set_message() {
  return {.kind = MessageKind::kCompareSet,
          .request = 0xFEDCBA98,
          .number = -5,
          .texts = {"key", std::string("a\0b", 3), ""}};
}

Result<std::optional<ControlMessage>> read(std::string_view bytes, size_t max_frame_bytes = 4096) {
  FrameReader reader(max_frame_bytes);
  reader.append(bytes);
  return reader.next();
}

TEST(ControlProtocol, AFrameReadsBackAsWritten) {
  const auto message = read(encode_frame(compare_set_message()));
  ASSERT_TRUE(message.ok());
  EXPECT_EQ(message.value(), compare_set_message());
}

TEST(ControlProtocol, FramesAreCutFromAStreamThatComesByteByByte) {
  std::string stream;
  for (int i = 0; i < 3; ++i) stream += encode_frame(compare_set_message());
  FrameReader reader(4096);
  int num_read = 0;
  for (const char byte : stream) {
    reader.append(std::string_view(&byte, 1));
    const auto message = reader.next();
    ASSERT_TRUE(message.ok());
    if (!message.value().has_value()) continue;
    EXPECT_EQ(message.value(), compare_set_message());
    ++num_read;
  }
  EXPECT_EQ(num_read, 3);
}

TEST(ControlProtocol, RefusesAFrameAboveTheLimitByItsLengthAlone) {
  const auto message = read("GET / HTTP/1.1\r\n", kMaxHelloBytes);
  ASSERT_FALSE(message.ok());
  EXPECT_EQ(message.error().message,
            "a control frame announces 542393671 bytes, more than the 512 allowed");
}

TEST(ControlProtocol, RefusesForeignFramesInOneSentence) {
  const std::string good = encode_frame(compare_set_message());
  const auto message_of = [](std::string frame) {
    // The length is made to fit, so that what is inside is looked at.
    frame[0] = static_cast<char>(frame.size() - 4);
    const auto message = read(frame);
    return message.ok() ? std::string("none") : message.error().message;
  };
  EXPECT_EQ(message_of(good.substr(0, 12)), "a control frame is shorter than its header");
  EXPECT_EQ(message_of(good.substr(0, 23)), "a control frame ends inside a text's length");
  EXPECT_EQ(message_of(good.substr(0, 26)), "a control frame ends inside a text");
  EXPECT_EQ(message_of(good + "x"), "a control frame has bytes after its last text");
  std::string foreign = good;
  foreign[4] = static_cast<char>(200);
  EXPECT_EQ(message_of(foreign), "a control frame is of the unknown kind 200");
  std::string wrong_count = good;
  wrong_count[17] = 2;
  EXPECT_EQ(message_of(wrong_count), "a control frame of kind 10 has 2 texts");
}

TEST(ControlProtocol, DamagedFramesAreRefusedOrReadNeverMore) {
  const char* given = std::getenv("TRIREME_SEED");
  const unsigned seed = given != nullptr ? static_cast<unsigned>(std::atoi(given)) : 1;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::string good = encode_frame(compare_set_message());
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    for (int change = 0; change < 3; ++change) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    bytes.resize(random() % (bytes.size() + 1));
    const auto read_back = read(bytes);
    if (!read_back.ok()) continue;
    const std::optional<Message>& message = read_back.value();
    if (!message.has_value()) continue;
    EXPECT_LE(encode_frame(*message).size(), bytes.size());
  }
}

TEST(ControlProtocol, TokensDifferAndAreComparedWhole) {
  const std::string token = make_control_token();
  EXPECT_EQ(token.size(), 32U);
  EXPECT_NE(token, make_control_token());
  EXPECT_TRUE(tokens_are_equal(token, token));
  EXPECT_FALSE(tokens_are_equal(token, token.substr(0, 31)));
  std::string other = token;
  other[31] = other[31] == '0' ? '1' : '0';
  EXPECT_FALSE(tokens_are_equal(token, other));
}

}  // namespace
}  // namespace trireme
