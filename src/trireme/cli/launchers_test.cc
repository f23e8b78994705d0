#include "trireme/cli/launchers.h"

#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/cli/host_list.h"

namespace trireme {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

VariableLookup lookup(const Variables& variables) {
  return [&variables](const char* name) -> const char* {
    const auto found = variables.find(std::string_view(name));
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

// "Open MPI 1/4 at 127.0.0.1:29500", or the error.
std::string place(const Variables& variables) {
  const Result<RankEnvironment> read = read_rank_environment(lookup(variables));
  if (!read.ok()) return read.error().message;
  const RankEnvironment& got = read.value();
  if (got.is_supervised())
    return fmt::format("{} {}/{}", got.launcher, got.rank, got.num_processes);
  return fmt::format("{} {}/{} at {}:{}", got.launcher, got.rank, got.num_processes,
                     got.master_host, got.master_port);
}

Variables operator+(Variables variables, const Variables& more) {
  for (const auto& [name, text] : more) variables[name] = text;
  return variables;
}
Variables operator-(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

const Variables kTorchrun = {
    {"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29501"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
const Variables kMpich = {
    {"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "4"}};
const Variables kSlurm = {{"SLURM_PROCID", "0"},
                          {"SLURM_NTASKS", "4"},
                          {"SLURM_LOCALID", "0"},
                          {"SLURM_JOB_NODELIST", "node[01-03,7],other"},
                          {"SLURM_JOB_ID", "4711"}};
const Variables kKubernetes = {{"JOB_COMPLETION_INDEX", "1"},
                               {"WORLD_SIZE", "2"},
                               {"MASTER_ADDR", "job-0.svc"},
                               {"MASTER_PORT", "29500"}};

TEST(Launchers, EachSaysWhereARankIs) {
  EXPECT_EQ(place({{"TRIREME_HUB", "h:1"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}}),
            "trireme train 0/1");
  EXPECT_EQ(place(kTorchrun), "torchrun 1/4 at a:29501");
  EXPECT_EQ(place(kOpenMpi), "Open MPI 2/4 at 127.0.0.1:29500");
  EXPECT_EQ(place(kMpich), "MPICH 3/4 at 127.0.0.1:29500");
  EXPECT_EQ(place(kSlurm), "SLURM 0/4 at node01:27418");
  EXPECT_EQ(place(kKubernetes), "Kubernetes 1/2 at job-0.svc:29500");
}

TEST(Launchers, TheInnermostCounts) {
  EXPECT_EQ(place(kSlurm + kOpenMpi), "Open MPI 2/4 at 127.0.0.1:29500");
  EXPECT_EQ(place(kSlurm + kMpich), "MPICH 3/4 at 127.0.0.1:29500");
  EXPECT_EQ(place(kSlurm + kTorchrun + Variables{{"WORLD_SIZE", "8"}}), "torchrun 1/8 at a:29501");
  EXPECT_EQ(place(kSlurm + kTorchrun + Variables{{"TORCHELASTIC_RUN_ID", "x"}}),
            "torchrun 1/4 at a:29501");
  EXPECT_EQ(place(kSlurm + Variables{{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_NODELIST", "b1"}}),
            "SLURM 0/2 at 127.0.0.1:27418");
}

TEST(Launchers, TheMasterIsTheUsersWhoeverStartsTheRanks) {
  const Variables master = {{"MASTER_ADDR", "m"}, {"MASTER_PORT", "7"}};
  EXPECT_EQ(place(kOpenMpi + master), "Open MPI 2/4 at m:7");
  EXPECT_EQ(place(kSlurm + master), "SLURM 0/4 at m:7");
}

TEST(Launchers, ThePortIsThatOfTheJob) {
  const Variables one = kOpenMpi + Variables{{"PMIX_NAMESPACE", "1068695553"}};
  const Variables two = kOpenMpi + Variables{{"PMIX_NAMESPACE", "1068695554"}};
  EXPECT_EQ(place(one), place(one + Variables{{"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}));
  EXPECT_NE(place(one), place(two));
  EXPECT_NE(place(kSlurm), place(kSlurm + Variables{{"SLURM_STEP_ID", "1"}}));
}

TEST(Launchers, OnSeveralHostsMpiHasToBeToldOfTheFirstOne) {
  EXPECT_EQ(place(kOpenMpi + Variables{{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}),
            "MASTER_ADDR is not set, but Open MPI has started 3 of 4 ranks on other hosts; set it "
            "to the host of rank 0 by mpirun -x MASTER_ADDR=HOST");
  EXPECT_EQ(place(kMpich + Variables{{"MPI_LOCALNRANKS", "2"}}),
            "MASTER_ADDR is not set, but MPICH has started 2 of 4 ranks on other hosts; set it to "
            "the host of rank 0 by mpiexec -genv MASTER_ADDR HOST");
  EXPECT_EQ(place(kMpich - "MPI_LOCALNRANKS"),
            "MASTER_ADDR is not set, but PMI_RANK of MPICH is; set it to the host of rank 0 by "
            "mpiexec -genv MASTER_ADDR HOST");
  EXPECT_EQ(place(kSlurm + kMpich + Variables{{"MPI_LOCALNRANKS", "2"}}),
            "MPICH 3/4 at node01:29500");
}

TEST(Launchers, AMissingVariableIsNamed) {
  EXPECT_EQ(place({}),
            "no variable of a launcher is set: RANK (torchrun), OMPI_COMM_WORLD_RANK (Open MPI), "
            "PMI_RANK (MPICH), SLURM_PROCID (SLURM), JOB_COMPLETION_INDEX (Kubernetes); start "
            "ranks by trireme train or one of these");
  EXPECT_EQ(place(kTorchrun - "RANK"),
            "RANK is not set, but WORLD_SIZE of torchrun is; start ranks by trireme train, or by "
            "torchrun --no-python");
  EXPECT_EQ(place(kTorchrun - "WORLD_SIZE"),
            "WORLD_SIZE is not set, but RANK of torchrun is; start ranks by trireme train, or by "
            "torchrun --no-python");
  EXPECT_EQ(place(kTorchrun - "MASTER_ADDR"),
            "MASTER_ADDR is not set, but RANK of torchrun is; start ranks by trireme train, or by "
            "torchrun --no-python");
  EXPECT_EQ(place(kTorchrun - "MASTER_PORT"),
            "MASTER_PORT is not set, but RANK of torchrun is; start ranks by trireme train, or by "
            "torchrun --no-python");
  EXPECT_EQ(place(kOpenMpi - "OMPI_COMM_WORLD_SIZE"),
            "OMPI_COMM_WORLD_SIZE is not set, but OMPI_COMM_WORLD_RANK of Open MPI is; mpirun sets "
            "both");
  EXPECT_EQ(place(kMpich - "PMI_SIZE"),
            "PMI_SIZE is not set, but PMI_RANK of MPICH is; mpiexec sets both");
  EXPECT_EQ(place(kMpich - "PMI_RANK"),
            "PMI_RANK is not set, but PMI_SIZE of MPICH is; mpiexec sets both");
  EXPECT_EQ(place(kSlurm - "SLURM_NTASKS"),
            "SLURM_STEP_NUM_TASKS is not set, but SLURM_PROCID of SLURM is; start ranks by srun, "
            "which sets both");
  EXPECT_EQ(place(kSlurm - "SLURM_JOB_NODELIST"),
            "SLURM_STEP_NODELIST is not set, but SLURM_PROCID of SLURM is; start ranks by srun, "
            "which sets both");
  for (const char* name : {"WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    EXPECT_EQ(place(kKubernetes - name),
              fmt::format("{} is not set, but JOB_COMPLETION_INDEX of Kubernetes is; the pod "
                          "template of an indexed Job has to set WORLD_SIZE, MASTER_ADDR and "
                          "MASTER_PORT",
                          name));
  }
}

TEST(Launchers, AWrongVariableIsNamed) {
  for (const char* wrong : {"one", "", "-1", "1x", "99999999999999999999"}) {
    EXPECT_EQ(place(kTorchrun + Variables{{"RANK", wrong}}),
              fmt::format("RANK is '{}', not a number from 0 to 1000000", wrong));
  }
  EXPECT_EQ(place(kTorchrun + Variables{{"RANK", "4"}}), "RANK is 4, but WORLD_SIZE is 4");
  EXPECT_EQ(place(kOpenMpi + Variables{{"OMPI_COMM_WORLD_RANK", "4"}}),
            "OMPI_COMM_WORLD_RANK is 4, but OMPI_COMM_WORLD_SIZE is 4");
  EXPECT_EQ(place(kTorchrun + Variables{{"MASTER_PORT", "65536"}}),
            "MASTER_PORT is '65536', not a number from 0 to 65535");
  EXPECT_EQ(place(kSlurm + Variables{{"SLURM_JOB_NODELIST", "node[1-"}}),
            "SLURM_JOB_NODELIST of SLURM is 'node[1-', not a list of hosts such as "
            "node[01-03,7],other: a bracket is not closed");
}

TEST(Launchers, ContradictionsAreRefused) {
  EXPECT_EQ(place(kOpenMpi + Variables{{"WORLD_SIZE", "2"}}),
            "WORLD_SIZE is 2, but OMPI_COMM_WORLD_SIZE of Open MPI is 4; unset WORLD_SIZE");
  EXPECT_EQ(place(kTorchrun + kOpenMpi),
            "RANK is 1, but OMPI_COMM_WORLD_RANK of Open MPI is 2; unset RANK");
  EXPECT_EQ(place(kTorchrun + kOpenMpi + Variables{{"RANK", "2"}}), "torchrun 2/4 at a:29501");
}

TEST(Launchers, TheRankInItsHostIsKnown) {
  EXPECT_EQ(rank_in_host(lookup({})), 0);
  EXPECT_EQ(rank_in_host(lookup(kTorchrun + Variables{{"LOCAL_RANK", "3"}})), 3);
  EXPECT_EQ(rank_in_host(lookup(kTorchrun + Variables{{"LOCAL_RANK", "-3"}})), 0);
  EXPECT_EQ(rank_in_host(lookup(kTorchrun + Variables{{"LOCAL_RANK", "many"}})), 0);
}

TEST(Launchers, TheFirstRankOfAHostIsKnown) {
  const auto is_first = [](const Variables& variables) {
    return is_first_of_host(lookup(variables));
  };
  EXPECT_TRUE(is_first({}));
  EXPECT_TRUE(is_first(kTorchrun));
  EXPECT_FALSE(is_first(kTorchrun + Variables{{"LOCAL_RANK", "1"}}));
  EXPECT_FALSE(is_first(kOpenMpi));
  EXPECT_FALSE(is_first(kMpich));
  EXPECT_TRUE(is_first(kSlurm));
  EXPECT_TRUE(is_first(kKubernetes));
}

std::string hosts(std::string_view text) {
  const auto expanded = expand_host_list(text);
  return expanded.ok() ? fmt::format("{}", fmt::join(expanded.value(), " "))
                       : "error: " + expanded.error().message;
}

TEST(HostList, IsExpanded) {
  EXPECT_EQ(hosts("a"), "a");
  EXPECT_EQ(hosts("node[01-03,7],other"), "node01 node02 node03 node7 other");
  EXPECT_EQ(hosts("r[1-2]n[8-9]x,b.c"), "r1n8x r1n9x r2n8x r2n9x b.c");
  EXPECT_EQ(hosts("n[09-11]"), "n09 n10 n11");
}

TEST(HostList, ThatIsNoneIsRefused) {
  EXPECT_EQ(hosts(""), "error: a name is empty");
  EXPECT_EQ(hosts("a,"), "error: a name is empty");
  EXPECT_EQ(hosts("a[1-2"), "error: a bracket is not closed");
  EXPECT_EQ(hosts("a]b"), "error: 'a]b' is no name");
  EXPECT_EQ(hosts("a b"), "error: 'a b' is no name");
  EXPECT_EQ(hosts("a[]"), "error: '' is no number");
  EXPECT_EQ(hosts("a[1,]"), "error: '' is no number");
  EXPECT_EQ(hosts("a[1-2-3]"), "error: '2-3' is no number");
  EXPECT_EQ(hosts("a[x]"), "error: 'x' is no number");
  EXPECT_EQ(hosts("a[3-1]"), "error: 3-1 ends before it begins");
  EXPECT_EQ(hosts("a[0-99999999]"), "error: it has too many hosts");
  EXPECT_EQ(hosts("a[1-999]b[1-999]"), "error: it has too many hosts");
}

}  // namespace
}  // namespace trireme
