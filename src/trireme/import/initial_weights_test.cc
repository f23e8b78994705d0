#include "trireme/import/initial_weights.h"

#include <cstring>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/import/scratch_directory.h"

namespace trireme {
namespace {

std::string safetensors(std::string_view header, std::string_view data) {
  return bytes_of<uint64_t>({header.size()}) + std::string(header) + std::string(data);
}

// A file of one tensor of two bytes.
std::string one_tensor(std::string_view name, std::string_view bytes) {
  return safetensors(
      fmt::format(R"({{"{}":{{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}}})", name), bytes);
}

class InitialWeightsTest : public testing::Test {
 protected:
  static std::string text(const InitialWeights& weights, std::string_view name) {
    const TensorView* tensor = weights.find(name);
    if (tensor == nullptr) return "none";
    return {reinterpret_cast<const char*>(tensor->bytes.data()), tensor->bytes.size()};
  }
  // What is wrong with an index, behind "the index PATH ".
  std::string index_error(std::string_view content) const {
    const std::string path = directory_.write("model.safetensors.index.json", content);
    const Result<InitialWeights> weights = InitialWeights::open(path);
    const std::string begin = "the index " + path + " ";
    if (weights.ok()) return "";
    const std::string& message = weights.error().message;
    return message.starts_with(begin) ? message.substr(begin.size()) : message;
  }

  ScratchDirectory directory_;
};

TEST_F(InitialWeightsTest, AFileIsMappedWhole) {
  const std::string path = directory_.write("w.safetensors", one_tensor("a", "xy"));
  InitialWeights weights = InitialWeights::open(path).value();
  EXPECT_EQ(weights.names(), std::vector<std::string>{"a"});
  EXPECT_TRUE(weights.map("a").ok());
  EXPECT_EQ(text(weights, "a"), "xy");
  weights.release("a");
  weights.release("b");
  EXPECT_EQ(text(weights, "a"), "xy");
  EXPECT_EQ(text(weights, "b"), "none");
}

TEST_F(InitialWeightsTest, AFolderHoldsAFileOrAnIndex) {
  const std::string folder = directory_.path("model");
  const auto error = [&] { return InitialWeights::open(folder).error().message; };
  directory_.write("model/config.json", "{}");
  EXPECT_EQ(error(), "the folder " + folder +
                         " holds neither model.safetensors.index.json nor model.safetensors; save "
                         "the weights there with save_pretrained, or name a safetensors file");
  const std::string file = directory_.write("model/model.safetensors", one_tensor("a", "xy"));
  EXPECT_EQ(InitialWeights::open(folder).value().path(), file);
  directory_.write("model/model.safetensors.index.json", R"({"weight_map":{"a":"s"}})");
  EXPECT_EQ(error(), "the folder " + folder +
                         " holds both model.safetensors.index.json and model.safetensors; name one "
                         "of them");
  std::filesystem::remove(file);
  EXPECT_EQ(InitialWeights::open(folder).value().path(), folder + "/model.safetensors.index.json");
}

TEST_F(InitialWeightsTest, OnlyTheFilesOfWhatIsAskedForAreRead) {
  directory_.write("one.safetensors", one_tensor("a", "xy"));
  const std::string path = directory_.write(
      "my.index.json",
      R"({"metadata":{"total_size":6},"weight_map":{"a":"one.safetensors","b":"two.safetensors",)"
      R"("c":"one.safetensors"}})");
  InitialWeights weights = InitialWeights::open(path).value();
  EXPECT_EQ(weights.names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(text(weights, "a"), "none");
  EXPECT_TRUE(weights.map("a").ok());
  EXPECT_EQ(text(weights, "a"), "xy");
  EXPECT_EQ(weights.map("c").error().message,
            "the index " + path + " puts c into one.safetensors, which has no such tensor");
  const std::string absent = directory_.path("two.safetensors");
  EXPECT_EQ(weights.map("b").error().message,
            "cannot open " + absent + ": No such file or directory");
  const std::string whole = one_tensor("b", "xy");
  directory_.write("two.safetensors", whole.substr(0, whole.size() - 1));
  EXPECT_EQ(weights.map("b").error().message, absent + ": tensor b has bytes outside the file");
  directory_.write("two.safetensors", whole);
  EXPECT_TRUE(weights.map("b").ok());
  EXPECT_EQ(text(weights, "b"), "xy");
}

TEST_F(InitialWeightsTest, AnIndexIsRefusedWhenItIsDamaged) {
  for (const char* content : {"", "{", "[]", "3", "{\"weight_map\": {\"a\": \"b\"}"}) {
    EXPECT_EQ(index_error(content), "is not a JSON object");
  }
  for (const char* content : {"{}", R"({"weight_map":[]})", R"({"weight_map":"a"})"}) {
    EXPECT_EQ(index_error(content), "has no weight_map of tensors to files");
  }
  EXPECT_EQ(index_error(R"({"weight_map":{"a":"s","b":"s","a":"t"}})"), "has a twice");
  EXPECT_EQ(index_error(R"({"weight_map":{"a":"s"},"weight_map":{}})"), "has weight_map twice");
  EXPECT_EQ(index_error(R"({"weight_map":{},"metadata":{"a":{"a":1},"b":{"a":1}}})"), "");
  for (const char* name : {R"("../s")", R"("/etc/passwd")", R"("..")", R"(".")", R"("")",
                           R"("a/../../s")", R"("a\\s")", "3", "null", R"(["s"])"}) {
    EXPECT_EQ(index_error(fmt::format(R"({{"weight_map":{{"h.0":{}}}}})", name)),
              fmt::format("puts h.0 into {}, which is not the name of a file beside it", name));
  }
  EXPECT_EQ(index_error(R"({"weight_map":{"h\n0":"../s"}})"),
            R"(puts h\x0a0 into "../s", which is not the name of a file beside it)");
}

TEST_F(InitialWeightsTest, ATensorIsNotInAFileTwice) {
  const std::string path = directory_.write(
      "w.safetensors", safetensors(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                   R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                   "xy"));
  EXPECT_EQ(InitialWeights::open(path).error().message,
            path + ": it is not a safetensors file: its header has a twice");
}

}  // namespace
}  // namespace trireme
