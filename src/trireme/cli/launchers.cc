#include "trireme/cli/launchers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "trireme/base/one_line.h"
#include "trireme/cli/host_list.h"

namespace trireme {
namespace {

enum class FirstHost : uint8_t {
  kGiven,     // by MASTER_ADDR and MASTER_PORT alone
  kOneHost,   // this one, when all ranks are here
  kNodeList,  // the first of SLURM's list
};

struct Launcher {
  const char* name;
  const char* rank;                 // its presence says that this launcher started the rank
  std::array<const char*, 2> size;  // the first that is set counts
  const char* local_rank;           // "": the launcher does not say
  const char* local_size;
  FirstHost first_host;
  std::array<const char*, 2> job;       // what tells two jobs apart
  const char* remedy;                   // for a variable that is missing
  const char* master_remedy = nullptr;  // for a MASTER_ADDR that is missing, when it is another
};

// In order of precedence.
constexpr std::array<Launcher, 5> kLaunchers = {{
    {.name = "torchrun",
     .rank = "RANK",
     .size = {"WORLD_SIZE"},
     .local_rank = "LOCAL_RANK",
     .local_size = "LOCAL_WORLD_SIZE",
     .first_host = FirstHost::kGiven,
     .job = {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"},
     .remedy = "start ranks by trireme train, or by torchrun --no-python"},
    {.name = "Open MPI",
     .rank = "OMPI_COMM_WORLD_RANK",
     .size = {"OMPI_COMM_WORLD_SIZE"},
     .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .first_host = FirstHost::kOneHost,
     .job = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"},
     .remedy = "mpirun sets both",
     .master_remedy = "set it to the host of rank 0 by mpirun -x MASTER_ADDR=HOST"},
    {.name = "MPICH",
     .rank = "PMI_RANK",
     .size = {"PMI_SIZE"},
     .local_rank = "MPI_LOCALRANKID",
     .local_size = "MPI_LOCALNRANKS",
     .first_host = FirstHost::kOneHost,
     .job = {},
     .remedy = "mpiexec sets both",
     .master_remedy = "set it to the host of rank 0 by mpiexec -genv MASTER_ADDR HOST"},
    {.name = "SLURM",
     .rank = "SLURM_PROCID",
     .size = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     .local_rank = "SLURM_LOCALID",
     .local_size = "",
     .first_host = FirstHost::kNodeList,
     .job = {"SLURM_JOB_ID", "SLURM_STEP_ID"},
     .remedy = "start ranks by srun, which sets both",
     .master_remedy = "start ranks by srun, or set MASTER_ADDR to the host of rank 0"},
    {.name = "Kubernetes",
     .rank = "JOB_COMPLETION_INDEX",
     .size = {"WORLD_SIZE"},
     .local_rank = "",
     .local_size = "",
     .first_host = FirstHost::kGiven,
     .job = {},
     .remedy = "the pod template of an indexed Job has to set WORLD_SIZE, MASTER_ADDR and "
               "MASTER_PORT"},
}};

constexpr std::array<const char*, 2> kNodeLists = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"};
constexpr int64_t kMaxProcesses = 1'000'000;
// Where nobody gives a port: torchrun's own, or one drawn from the number of the job, below those
// that the kernel hands out.
constexpr uint16_t kDefaultPort = 29500;
constexpr uint32_t kFirstPort = 20000;
constexpr uint32_t kNumPorts = 9000;

struct Setting {
  const char* name;
  const char* text;  // nullptr: not set
};

template <size_t N>
Setting first_set(const VariableLookup& variable, const std::array<const char*, N>& names) {
  for (const char* name : names) {
    if (name == nullptr || *name == '\0') continue;
    if (const char* text = variable(name); text != nullptr) return {name, text};
  }
  return {names[0], nullptr};
}

std::string text_of(const VariableLookup& variable, const char* name) {
  const char* text = name == nullptr || *name == '\0' ? nullptr : variable(name);
  return text == nullptr ? "" : text;
}

// At most `largest`.
Result<int64_t> number_of(const Setting& setting, int64_t largest) {
  const std::string_view text = setting.text;
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || stop != end || number < 0 || number > largest) {
    return Error{fmt::format("{} is '{}', not a number from 0 to {}", setting.name,
                             one_line(text, 60), largest)};
  }
  return number;
}

Error missing(const char* name, const Launcher& launcher) {
  return Error{fmt::format("{} is not set, but {} of {} is; {}", name, launcher.rank, launcher.name,
                           launcher.remedy)};
}

const Launcher* find_launcher(const VariableLookup& variable) {
  const auto* found =
      std::find_if(kLaunchers.begin(), kLaunchers.end(),
                   [&](const Launcher& launcher) { return variable(launcher.rank) != nullptr; });
  return found == kLaunchers.end() ? nullptr : found;
}

Error no_launcher(const VariableLookup& variable) {
  std::string names;
  for (const Launcher& launcher : kLaunchers) {
    const Setting size = first_set(variable, launcher.size);
    if (size.text != nullptr) {
      return Error{fmt::format("{} is not set, but {} of {} is; {}", launcher.rank, size.name,
                               launcher.name, launcher.remedy)};
    }
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", launcher.rank, launcher.name);
  }
  return Error{fmt::format(
      "no variable of a launcher is set: {}; start ranks by trireme train or one of these", names)};
}

// Variables of torchrun beside those of a launcher are left over, or were set by hand.
Status check_contradictions(const VariableLookup& variable, const Launcher& launcher,
                            const RankEnvironment& environment) {
  const bool is_elastic = variable("TORCHELASTIC_RUN_ID") != nullptr;
  if (launcher.first_host != FirstHost::kGiven) {
    const Setting size = first_set(variable, kLaunchers[0].size);
    if (size.text == nullptr || is_elastic) return Status();
    TRIREME_TRY(const int64_t given, number_of(size, kMaxProcesses));
    if (given == environment.num_processes) return Status();
    return Error{fmt::format("{} is {}, but {} of {} is {}; unset {}", size.name, given,
                             first_set(variable, launcher.size).name, launcher.name,
                             environment.num_processes, size.name)};
  }
  if (&launcher != &kLaunchers[0] || is_elastic) return Status();
  for (const Launcher& other : kLaunchers) {
    if (other.first_host == FirstHost::kGiven || variable(other.rank) == nullptr) continue;
    const Setting size = first_set(variable, other.size);
    if (size.text == nullptr) continue;
    TRIREME_TRY(const int64_t other_size, number_of(size, kMaxProcesses));
    TRIREME_TRY(const int64_t rank, number_of({other.rank, variable(other.rank)}, kMaxProcesses));
    // With another number of ranks, a launcher runs inside the other one.
    if (other_size != environment.num_processes || rank == environment.rank) continue;
    return Error{fmt::format("{} is {}, but {} of {} is {}; unset {}", launcher.rank,
                             environment.rank, other.rank, other.name, rank, launcher.rank)};
  }
  return Status();
}

// FNV-1a: the same on all hosts.
uint32_t digest_of(std::string_view text) {
  uint32_t digest = 0x811c9dc5;
  for (const char byte : text) digest = (digest ^ static_cast<uint8_t>(byte)) * 0x01000193;
  return digest;
}

// Empty: there is no list.
Result<std::string> first_of_node_list(const VariableLookup& variable) {
  const Setting list = first_set(variable, kNodeLists);
  if (list.text == nullptr) return std::string();
  const Result<std::vector<std::string>> hosts = expand_host_list(list.text);
  if (!hosts.ok()) {
    return Error{
        fmt::format("{} of SLURM is '{}', not a list of hosts such as node[01-03,7],other: {}",
                    list.name, one_line(list.text, 200), hosts.error().message)};
  }
  // The name of the only host need not be known to a resolver.
  return hosts.value().size() == 1 ? "127.0.0.1" : hosts.value().front();
}

Result<std::string> find_first_host(const VariableLookup& variable, const Launcher& launcher,
                                    int32_t num_processes) {
  const std::string given = text_of(variable, "MASTER_ADDR");
  if (!given.empty()) return given;
  const char* remedy = launcher.master_remedy == nullptr ? launcher.remedy : launcher.master_remedy;
  const Error unknown{fmt::format("MASTER_ADDR is not set, but {} of {} is; {}", launcher.rank,
                                  launcher.name, remedy)};
  if (launcher.first_host == FirstHost::kGiven) return unknown;
  std::optional<int64_t> num_here;
  if (const Setting here{launcher.local_size, variable(launcher.local_size)};
      launcher.first_host == FirstHost::kOneHost && here.text != nullptr) {
    TRIREME_TRY(num_here, number_of(here, kMaxProcesses));
    if (*num_here == num_processes) return std::string("127.0.0.1");
  }
  // Open MPI and MPICH use the hosts of an allocation of SLURM.
  TRIREME_TRY(std::string listed, first_of_node_list(variable));
  if (!listed.empty()) return listed;
  if (launcher.first_host == FirstHost::kNodeList) return missing(kNodeLists[0], launcher);
  if (!num_here.has_value()) return unknown;
  return Error{
      fmt::format("MASTER_ADDR is not set, but {} has started {} of {} ranks on other "
                  "hosts; {}",
                  launcher.name, num_processes - *num_here, num_processes, remedy)};
}

Result<uint16_t> find_port(const VariableLookup& variable, const Launcher& launcher,
                           const std::string& job) {
  const Setting given{"MASTER_PORT", variable("MASTER_PORT")};
  if (given.text != nullptr) {
    TRIREME_TRY(const int64_t port, number_of(given, std::numeric_limits<uint16_t>::max()));
    return static_cast<uint16_t>(port);
  }
  if (launcher.first_host == FirstHost::kGiven) return missing(given.name, launcher);
  if (job.empty()) return kDefaultPort;
  return static_cast<uint16_t>(kFirstPort + digest_of(job) % kNumPorts);
}

// Rank and number of processes of either `trireme train` or a row.
Status read_place(const VariableLookup& variable, const Launcher& launcher,
                  RankEnvironment& environment) {
  const Setting rank{launcher.rank, variable(launcher.rank)};
  const Setting size = first_set(variable, launcher.size);
  if (rank.text == nullptr) return missing(launcher.rank, launcher);
  if (size.text == nullptr) return missing(size.name, launcher);
  TRIREME_TRY(const int64_t rank_number, number_of(rank, kMaxProcesses));
  TRIREME_TRY(const int64_t size_number, number_of(size, kMaxProcesses));
  if (rank_number >= size_number) {
    return Error{
        fmt::format("{} is {}, but {} is {}", rank.name, rank_number, size.name, size_number)};
  }
  environment.launcher = launcher.name;
  environment.rank = static_cast<int32_t>(rank_number);
  environment.num_processes = static_cast<int32_t>(size_number);
  return Status();
}

}  // namespace

Result<RankEnvironment> read_rank_environment(const VariableLookup& variable) {
  RankEnvironment environment;
  environment.hub = text_of(variable, "TRIREME_HUB");
  if (environment.is_supervised()) {
    environment.token = text_of(variable, "TRIREME_TOKEN");
    TRIREME_TRY(read_place(variable, kLaunchers[0], environment));
    environment.launcher = "trireme train";
    return environment;
  }
  const Launcher* launcher = find_launcher(variable);
  if (launcher == nullptr) return no_launcher(variable);
  TRIREME_TRY(read_place(variable, *launcher, environment));
  TRIREME_TRY(check_contradictions(variable, *launcher, environment));
  for (const char* name : launcher->job) {
    const std::string part = text_of(variable, name);
    if (!part.empty()) environment.job += (environment.job.empty() ? "" : ".") + part;
  }
  TRIREME_TRY(environment.master_host,
              find_first_host(variable, *launcher, environment.num_processes));
  TRIREME_TRY(environment.master_port, find_port(variable, *launcher, environment.job));
  environment.agent_serves_store = text_of(variable, "TORCHELASTIC_USE_AGENT_STORE") == "True";
  environment.name_may_come = variable("JOB_COMPLETION_INDEX") != nullptr;
  return environment;
}

int32_t rank_in_host(const VariableLookup& variable) {
  const Launcher* launcher = find_launcher(variable);
  const Launcher& row = launcher == nullptr ? kLaunchers[0] : *launcher;
  const std::string text = text_of(variable, row.local_rank);
  int32_t rank = 0;
  std::from_chars(text.data(), text.data() + text.size(), rank);
  return std::max(rank, 0);
}

bool is_first_of_host(const VariableLookup& variable) {
  const Launcher* launcher = find_launcher(variable);
  const Launcher& row = launcher == nullptr ? kLaunchers[0] : *launcher;
  const std::string local_rank = text_of(variable, row.local_rank);
  return local_rank.empty() || local_rank == "0";
}

std::string launcher_help() {
  std::string text =
      "Started by a launcher, one process a rank, a worker finds its place by these variables, the "
      "first line that is set; MASTER_ADDR and MASTER_PORT say where rank 0 is, whatever the "
      "launcher:\n";
  for (const Launcher& launcher : kLaunchers) {
    constexpr std::array kHosts = {"needs MASTER_ADDR, MASTER_PORT",
                                   "on several hosts needs MASTER_ADDR",
                                   "the first host of SLURM_STEP_NODELIST has rank 0"};
    text += fmt::format("  {:<11} {}, {}; {}\n", launcher.name, launcher.rank,
                        launcher.size[1] == nullptr ? launcher.size[0] : launcher.size[1],
                        kHosts[static_cast<size_t>(launcher.first_host)]);
  }
  return text;
}

}  // namespace trireme
