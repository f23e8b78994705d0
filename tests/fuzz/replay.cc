// Hands every file of a folder to a fuzz target: corpora are tests where there is no libFuzzer.
//
//   fuzz_replay TARGET FOLDER
//
// TRIREME_FUZZ_TARGETS has TRIREME_FUZZ_TARGET(name) for each row of CMakeLists.txt, which also
// gives the target's LLVMFuzzerTestOneInput the name fuzz_NAME.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#define TRIREME_FUZZ_TARGET(name) extern "C" int fuzz_##name(const uint8_t* data, size_t size);
TRIREME_FUZZ_TARGETS
#undef TRIREME_FUZZ_TARGET

namespace {

struct Target {
  std::string_view name;
  int (*run)(const uint8_t* data, size_t size);
};

#define TRIREME_FUZZ_TARGET(name) {#name, fuzz_##name},
constexpr Target kTargets[] = {TRIREME_FUZZ_TARGETS};
#undef TRIREME_FUZZ_TARGET

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string_view name = argv[1];
  const auto* const target = std::find_if(std::begin(kTargets), std::end(kTargets),
                                          [name](const Target& each) { return each.name == name; });
  if (target == std::end(kTargets)) return 2;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(argv[2])) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  for (const std::filesystem::path& path : paths) {
    std::printf("%s\n", path.c_str());  // the last one, when it crashes
    std::fflush(stdout);
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    target->run(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  }
  std::printf("%zu inputs\n", paths.size());
  return paths.empty() ? 1 : 0;
}
