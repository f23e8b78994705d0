// Damaged files of tensors: safetensors and .npy.

#include <iostream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/import/damaged_archive.h"
#include "trireme/import/npy.h"
#include "trireme/import/safetensors.h"
#include "trireme/import/scratch_directory.h"

namespace trireme {
namespace {

class DamagedTensors : public testing::Test {
 protected:
  // The error behind the path of the file, or the tensors that are read to the last byte.
  template <typename File>
  std::string outcome(const std::string& path, const Result<File>& file) {
    if (!file.ok()) {
      expect_readable(file.error().message, path);
      const std::string& message = file.error().message;
      return message.starts_with(path) ? message.substr(path.size()) : message;
    }
    std::string names;
    int sum = 0;
    for (const auto& [name, tensor] : tensors_of(file.value())) {
      EXPECT_EQ(tensor_bytes(tensor.sizes, tensor.dtype), tensor.bytes.size());
      for (const std::byte byte : tensor.bytes) sum += std::to_integer<int>(byte);
      names += " " + name;
    }
    return sum < 0 ? "" : "read" + names;
  }
  std::string safetensors_outcome(std::string_view content) {
    const std::string path = directory_.write("t.safetensors", content);
    return outcome(path, SafetensorsFile::open(path));
  }
  std::string npy_outcome(std::string_view content) {
    const std::string path = directory_.write("t.npy", content);
    return outcome(path, open_npy(path));
  }

  ScratchDirectory directory_;

 private:
  static std::map<std::string, TensorView, std::less<>> tensors_of(const SafetensorsFile& file) {
    return file.tensors();
  }
  static std::map<std::string, TensorView, std::less<>> tensors_of(const NpyFile& file) {
    return {{"array", file.array}};
  }
};

std::string safetensors(std::string_view header, std::string_view data) {
  return bytes_of<uint64_t>({header.size()}) + std::string(header) + std::string(data);
}

// A file of two tensors, a of f32[2] and b of i64[1].
std::string whole_safetensors() {
  return safetensors(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                     R"("b":{"dtype":"I64","shape":[1],"data_offsets":[8,16]}})",
                     "0123456789abcdef");
}

// The same with one entry.
std::string entry_outcome_file(std::string_view entry) {
  return safetensors(fmt::format("{{\"a\":{}}}", entry), "01234567");
}

TEST_F(DamagedTensors, SafetensorsAreReadWhenWhole) {
  EXPECT_EQ(safetensors_outcome(whole_safetensors()), "read a b");
  EXPECT_EQ(safetensors_outcome(safetensors(R"({"__metadata__":{"format":"pt"}})", "")), "read");
}

TEST_F(DamagedTensors, SafetensorsAreRefusedAtEveryLengthBelowTheWhole) {
  const std::string whole = whole_safetensors();
  for (size_t length = 0; length < whole.size(); ++length) {
    const std::string message = safetensors_outcome(whole.substr(0, length));
    if (length < 8) {
      EXPECT_EQ(message, ": it is not a safetensors file: it is shorter than 8 bytes");
    } else if (length < whole.size() - 16) {
      EXPECT_EQ(message,
                fmt::format(": it is truncated or not a safetensors file: its header of {} "
                            "bytes ends outside the file",
                            whole.size() - 24));
    } else {
      EXPECT_TRUE(message.ends_with(" has bytes outside the file")) << message;
    }
  }
}

TEST_F(DamagedTensors, SafetensorsAreRefusedWhenTheHeaderIsDamaged) {
  for (const uint64_t size : {UINT64_MAX, UINT64_MAX - 7, uint64_t{1} << 63, uint64_t{1000}}) {
    EXPECT_EQ(
        safetensors_outcome(bytes_of<uint64_t>({size}) + "{}"),
        fmt::format(": it is truncated or not a safetensors file: its header of {} bytes ends "
                    "outside the file",
                    size));
  }
  for (const std::string& header :
       {std::string("[]"), std::string("{"), std::string("{\"a\":\"\xFF\"}"), std::string(),
        std::string(100000, '['), std::string(100000, '[') + std::string(100000, ']')}) {
    EXPECT_EQ(safetensors_outcome(safetensors(header, "")),
              ": it is not a safetensors file: its header is not a JSON object");
  }
  std::string deep(100000, '[');
  deep += std::string(100000, ']');
  EXPECT_EQ(safetensors_outcome(entry_outcome_file(deep)), ": tensor a has a malformed entry");
}

TEST_F(DamagedTensors, SafetensorsAreRefusedWhenAnEntryIsDamaged) {
  const auto entry = [&](std::string_view dtype, std::string_view shape, std::string_view offsets) {
    return safetensors_outcome(entry_outcome_file(
        fmt::format(R"({{"dtype":{},"shape":{},"data_offsets":{}}})", dtype, shape, offsets)));
  };
  EXPECT_EQ(entry("\"F32\"", "[2]", "[0,8]"), "read a");
  EXPECT_EQ(entry("\"F31\"", "[2]", "[0,8]"), ": tensor a has the unknown dtype 'F31'");
  EXPECT_EQ(entry("\"F\\n\"", "[2]", "[0,8]"), ": tensor a has the unknown dtype 'F\\x0a'");
  for (const std::string_view dtype : {"3", "null", "[]"}) {
    EXPECT_EQ(entry(dtype, "[2]", "[0,8]"), ": tensor a has a malformed entry");
  }
  for (const std::string_view offsets : {"[0]", "[0,8,8]", "8", "null", "{}"}) {
    EXPECT_EQ(entry("\"F32\"", "[2]", offsets), ": tensor a has a malformed entry");
  }
  for (const std::string_view shape : {"2", "null", "{}"}) {
    EXPECT_EQ(entry("\"F32\"", shape, "[0,8]"), ": tensor a has a malformed entry");
  }
  for (const std::string_view shape : {"[-2]", "[2.0]", "[\"2\"]", "[[2]]"}) {
    EXPECT_EQ(entry("\"F32\"", shape, "[0,8]"), ": tensor a has a malformed shape") << shape;
  }
  for (const std::string_view shape : {"[4611686018427387904]", "[4294967296,4294967296]",
                                       "[18446744073709551615]", "[9223372036854775808]"}) {
    EXPECT_EQ(entry("\"F32\"", shape, "[0,8]"), ": tensor a has an impossible shape") << shape;
  }
  for (const std::string_view offsets : {"[-1,7]", "[0.0,8]", "[null,8]"}) {
    EXPECT_EQ(entry("\"F32\"", "[2]", offsets), ": tensor a has malformed offsets");
  }
  for (const std::string_view offsets :
       {"[8,0]", "[0,9]", "[8,16]", "[18446744073709551608,0]", "[0,18446744073709551615]"}) {
    EXPECT_EQ(entry("\"F32\"", "[2]", offsets), ": tensor a has bytes outside the file") << offsets;
  }
  EXPECT_EQ(entry("\"F32\"", "[2]", "[0,4]"),
            ": tensor a has another number of bytes than its shape says");
}

TEST_F(DamagedTensors, SafetensorsAreRefusedWhenTensorsOverlap) {
  EXPECT_EQ(
      safetensors_outcome(safetensors(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                      R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                                      "0123456789abcdef")),
      ": the bytes of the tensors a and b overlap");
}

std::string npy(std::string_view header, std::string_view data) {
  return std::string("\x93NUMPY\x01\x00", 8) +
         bytes_of<uint16_t>({static_cast<uint16_t>(header.size())}) + std::string(header) +
         std::string(data);
}
constexpr std::string_view kHeader =
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }    \n";

TEST_F(DamagedTensors, NpyIsReadWhenWhole) {
  EXPECT_EQ(npy_outcome(npy(kHeader, "01234567")), "read array");
  std::string second = npy(kHeader, "01234567");
  second[6] = 2;
  second.insert(10, 2, '\0');
  EXPECT_EQ(npy_outcome(second), "read array");
}

TEST_F(DamagedTensors, NpyIsRefusedAtEveryLengthBelowTheWhole) {
  const std::string whole = npy(kHeader, "01234567");
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_EQ(npy_outcome(whole.substr(0, length)),
              length < 12 ? ": it is not an .npy file" : ": it is truncated");
  }
}

TEST_F(DamagedTensors, NpyIsRefusedWhenItsHeaderIsDamaged) {
  EXPECT_EQ(npy_outcome(std::string(100, 'x')), ": it is not an .npy file");
  std::string version = npy(kHeader, "01234567");
  version[6] = 9;
  EXPECT_EQ(npy_outcome(version), ": its .npy version is 9, and this reader knows 1 to 3");
  std::string long_header = npy(kHeader, "01234567");
  long_header[6] = 2;  // reads four bytes of header size
  EXPECT_EQ(npy_outcome(long_header), ": it is truncated");
  for (const std::string_view header :
       {"", "{}", "{'descr': '<f4'", "{'descr': '<f4', 'fortran_order': False}",
        "{'fortran_order': False, 'shape': (2,), 'descr': '<f"}) {
    EXPECT_EQ(npy_outcome(npy(header, "01234567")), ": its header is malformed") << header;
  }
}

TEST_F(DamagedTensors, NpyIsRefusedWhenItIsNoPlainArray) {
  const auto with = [&](std::string_view descr, std::string_view order, std::string_view shape) {
    return npy_outcome(npy(
        fmt::format("{{'descr': {}, 'fortran_order': {}, 'shape': {}, }}\n", descr, order, shape),
        "01234567"));
  };
  EXPECT_EQ(with("'<f4'", "False", "(2,)"), "read array");
  EXPECT_EQ(with("'>f4'", "False", "(2,)"), ": its dtype '>f4' is not supported");
  EXPECT_EQ(with("'|O'", "False", "(2,)"), ": its dtype '|O' is not supported");
  EXPECT_EQ(with("'<c16'", "False", "(2,)"), ": its dtype '<c16' is not supported");
  EXPECT_EQ(with("[('x', '<f4')]", "False", "(2,)"), ": its dtype [('x' is not supported");
  EXPECT_EQ(with("'\n\x1b'", "False", "(2,)"), ": its dtype '\\x0a\\x1b' is not supported");
  EXPECT_EQ(with("'<f4'", "True", "(2,)"),
            ": it is in Fortran order; save numpy.ascontiguousarray of it");
  for (const std::string_view shape : {"2", "(2", "(-2,)", "(x,)", "(2,2.5)",
                                       "(99999999999999999999,)", "(", "(2 3)", "(,)", "(2,,)"}) {
    EXPECT_EQ(with("'<f4'", "False", shape), ": its shape is malformed") << shape;
  }
  for (const std::string_view shape :
       {"(4611686018427387904,)", "(4294967296, 4294967296)", "(9223372036854775807, 3)"}) {
    EXPECT_EQ(with("'<f4'", "False", shape), ": its shape is impossible") << shape;
  }
  for (const std::string_view shape : {"(3,)", "(1152921504606846976,)"}) {
    EXPECT_EQ(with("'<f4'", "False", shape), ": it is truncated") << shape;
  }
}

TEST_F(DamagedTensors, AreReadOrRefusedWhereverBitsFlip) {
  const uint64_t seed = test_seed();
  std::cout << "TRIREME_SEED=" << seed << "\n";
  std::mt19937_64 random(seed);
  for (const std::string& whole : {whole_safetensors(), npy(kHeader, "01234567")}) {
    const bool is_npy = whole.starts_with("\x93NUMPY");
    int num_refused = 0;
    for (size_t i = 0; i < whole.size() * 8; ++i) {
      std::string content = whole;
      content[i / 8] = static_cast<char>(content[i / 8] ^ (1 << (i % 8)));
      if (i % 2 == 1) content[random() % content.size()] ^= static_cast<char>(1 << random() % 8);
      SCOPED_TRACE(testing::Message() << "flip " << i);
      const std::string outcome = is_npy ? npy_outcome(content) : safetensors_outcome(content);
      num_refused += outcome.starts_with("read") ? 0 : 1;
    }
    EXPECT_GT(num_refused, 100);
  }
}

}  // namespace
}  // namespace trireme
