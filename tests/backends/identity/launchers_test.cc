// Every launcher's variables, alone, within each other and against each other.
#include <gtest/gtest.h>

#include <map>

#include "backends/backend_error.h"
#include "backends/identity/identity.h"
#include "backends/identity/launchers.h"
#include "backends/identity/slurm_launcher.h"
#include "tests/support/expect_contains.h"

namespace {

using backends::Identity;
using backends::IdentityRequest;
using Variables = std::map<std::string, std::string>;

backends::Environment environment_of(const Variables& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found != variables.end() ? std::optional<std::string>(found->second) : std::nullopt;
  };
}

Identity resolve(const Variables& variables, const IdentityRequest& request = {}) {
  return backends::resolve_identity(request, environment_of(variables));
}

std::string error_of(const Variables& variables, const IdentityRequest& request = {}) {
  try {
    resolve(variables, request);
  } catch (const backends::ConfigurationError& error) {
    return error.what();
  }
  return "no error";
}

Variables operator+(Variables a, const Variables& b) {
  for (const auto& [name, value] : b) a[name] = value;
  return a;
}

// srun -N 3 of 2, 2 and 1 tasks; this is task 3.
const Variables kStep = {{"SLURM_JOB_ID", "24711"},
                         {"SLURM_STEP_ID", "2"},
                         {"SLURM_PROCID", "3"},
                         {"SLURM_LOCALID", "1"},
                         {"SLURM_NODEID", "1"},
                         {"SLURM_NTASKS", "5"},
                         {"SLURM_STEP_NUM_TASKS", "5"},
                         {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                         {"SLURM_STEP_NODELIST", "n[7-9]"},
                         {"SLURM_JOB_NODELIST", "n[1-9]"}};
// srun -N 4 with one task each; this is task 2.
const Variables kOneANode = {{"SLURM_JOB_ID", "5"},
                             {"SLURM_STEP_ID", "0"},
                             {"SLURM_PROCID", "2"},
                             {"SLURM_LOCALID", "0"},
                             {"SLURM_NODEID", "2"},
                             {"SLURM_STEP_NUM_TASKS", "4"},
                             {"SLURM_STEP_TASKS_PER_NODE", "1(x4)"},
                             {"SLURM_STEP_NODELIST", "n[1-4]"}};

TEST(Launchers, ASlurmStepNeedsNoFlag) {
  const Identity id = resolve(kStep);
  EXPECT_EQ(id.rank, 3);
  EXPECT_EQ(id.world_size, 5);
  EXPECT_EQ(id.local_rank, 1);
  EXPECT_EQ(id.local_world_size, 2);
  EXPECT_EQ(id.node_rank, 1);
  EXPECT_EQ(id.init_method, "tcp://n7:14712") << "10001 + 24711 % 10000";
  EXPECT_EQ(id.port_window, 16);
  EXPECT_EQ(id.job_from.value, "slurm 24711.2");
  EXPECT_EQ(id.rank_from.source, "SLURM_PROCID");
  EXPECT_EQ(id.world_from.source, "SLURM_STEP_NUM_TASKS");
  EXPECT_EQ(id.master_addr_from.source, "SLURM_STEP_NODELIST");
  EXPECT_TRUE(id.warnings.empty());
}

TEST(Launchers, TheStepsVariablesGoBeforeTheJobs) {
  const Identity id =
      resolve(kStep + Variables{{"SLURM_NTASKS", "64"}, {"SLURM_TASKS_PER_NODE", "8(x8)"}});
  EXPECT_EQ(id.world_size, 5);
  Variables job_only = kStep;
  for (const char* name :
       {"SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE"})
    job_only.erase(name);
  const Identity other = resolve(job_only + Variables{{"SLURM_TASKS_PER_NODE", "1(x64)"}});
  EXPECT_EQ(other.world_from.source, "SLURM_NTASKS");
  EXPECT_EQ(other.master_addr_from.value, "n1");
  EXPECT_EQ(other.known_local_world_size(), std::nullopt) << "64 tasks are not the step's 5";
}

TEST(Launchers, TheMasterIsTheHostOfTask0) {
  EXPECT_EQ(resolve(kStep + Variables{{"SLURM_STEP_NODELIST", "beta,alpha,gamma"}})
                .master_addr_from.value,
            "beta");
  EXPECT_EQ(resolve(kStep + Variables{{"SLURM_DISTRIBUTION", "arbitrary"},
                                      {"SLURM_ARBITRARY_NODELIST", "n9,n9,n7,n8,n8"}})
                .master_addr_from.value,
            "n9");
  EXPECT_EQ(resolve(kStep + Variables{{"MASTER_ADDR", "10.0.0.7"}}).init_method,
            "tcp://10.0.0.7:14712");
  const Identity one_host = resolve(kStep + Variables{{"SLURM_STEP_NODELIST", "n7"},
                                                      {"SLURM_STEP_TASKS_PER_NODE", "5"},
                                                      {"SLURM_NODEID", "0"}});
  EXPECT_EQ(one_host.master_addr_from.value, "127.0.0.1");
  EXPECT_CONTAINS(error_of(kStep + Variables{{"MASTER_ADDR", "localhost"}}),
                  "MASTER_ADDR=localhost is a loopback address");
  EXPECT_CONTAINS(error_of(kStep + Variables{{"SLURM_STEP_NODELIST", "n[7-9"}}),
                  "SLURM_STEP_NODELIST \"n[7-9\": position 2");
}

TEST(Launchers, ABatchScriptIsNoTask) {
  for (const char* step : {"", "batch", "4294967291", "4294967290"}) {
    Variables batch = {{"SLURM_JOB_ID", "9"},
                       {"SLURM_PROCID", "0"},
                       {"SLURM_NTASKS", "4"},
                       {"SLURM_JOB_NODELIST", "n[1-2]"}};
    if (*step != '\0') batch["SLURM_STEP_ID"] = step;
    const Identity id = resolve(batch);
    EXPECT_EQ(id.world_size, 1) << step;
    ASSERT_EQ(id.warnings.size(), 1u) << step;
    EXPECT_CONTAINS(id.warnings[0], "SLURM job 9 (SLURM_NTASKS=4)");
    EXPECT_CONTAINS(id.warnings[0], "srun");
    batch["SLURM_NTASKS"] = "1";
    EXPECT_TRUE(resolve(batch).warnings.empty());
  }
}

// As in containers to which few variables are forwarded: each task would train alone.
TEST(Launchers, ATaskWithoutItsStepIsRefused) {
  const Variables task = {{"SLURM_JOB_ID", "9"}, {"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "12"}};
  EXPECT_CONTAINS(error_of(task), "SLURM_PROCID=5 and SLURM_NTASKS=12, but no SLURM_STEP_ID");
  for (const char* rank : {"5", "0"})
    EXPECT_CONTAINS(
        error_of({{"SLURM_PROCID", rank}, {"SLURM_NTASKS", "12"}}),
        std::string("SLURM_PROCID=") + rank + " and SLURM_NTASKS=12, but no SLURM_STEP_ID")
        << "without a job this is no batch script";
  EXPECT_EQ(resolve(task + Variables{{"SLURM_STEP_ID", "0"}, {"SLURM_JOB_NODELIST", "n1"}}).rank,
            5);
  // Task 0 differs from a batch script by what srun alone sets.
  const Variables first = {{"SLURM_JOB_ID", "9"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "12"}};
  for (const auto& [name, value] : Variables{{"SLURM_STEP_NUM_TASKS", "12"},
                                             {"SLURM_STEP_NODELIST", "n[1-3]"},
                                             {"SLURM_STEP_TASKS_PER_NODE", "4(x3)"},
                                             {"SLURM_STEP_NUM_NODES", "3"},
                                             {"SLURM_STEP_LAUNCHER_PORT", "40001"},
                                             {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"},
                                             {"SLURM_SRUN_COMM_HOST", "10.0.0.1"}})
    EXPECT_CONTAINS(error_of(first + Variables{{name, value}}),
                    "SLURM_PROCID=0 and SLURM_NTASKS=12, but no SLURM_STEP_ID")
        << name;
}

TEST(Launchers, BrokenSlurmVariablesAreNamed) {
  EXPECT_CONTAINS(error_of(kStep + Variables{{"SLURM_PROCID", "five"}}),
                  "SLURM_PROCID=five: expected a rank");
  EXPECT_CONTAINS(error_of(kStep + Variables{{"SLURM_PROCID", "5"}}),
                  "SLURM_PROCID=5: expected a rank from 0 below the world size 5");
  EXPECT_CONTAINS(error_of(kStep + Variables{{"SLURM_STEP_TASKS_PER_NODE", "2,2"}}),
                  "add up to SLURM_STEP_NUM_TASKS=5");
  EXPECT_VALUES(error_of(kStep + Variables{{"SLURM_NODEID", "3"}}), "SLURM_NODEID=3: 0 3 nodes");
  for (const char* bad :
       {"2(x2", "2(x)", "2(y2),1", "x", "2(x99999999),1", "2,,1", "2(x65536),2(x65536)"})
    EXPECT_VALUES(error_of(kStep + Variables{{"SLURM_STEP_TASKS_PER_NODE", bad}}),
                  std::string("SLURM_STEP_TASKS_PER_NODE=") + bad + ": 2(x3),1");
}

TEST(Launchers, TasksPerNode) {
  EXPECT_EQ(backends::tasks_per_node({"2(x3),1", "X"}), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(backends::tasks_per_node({"4", "X"}), std::vector<int>{4});
  EXPECT_EQ(backends::smallest_gpu({"10,9", "X"}), 9) << "by value, not by text";
  EXPECT_EQ(backends::smallest_gpu({"4-7", "X"}), 4);
  EXPECT_THROW(backends::smallest_gpu({"GPU-1a2b", "X"}), backends::ConfigurationError);
}

TEST(Launchers, PortRules) {
  const auto port = [](const Variables& v, const char* rule) {
    return resolve(v, {.init_method = "", .port_rule = backends::parse_port_rule(rule)})
        .init_method;
  };
  const Variables gpus = kStep + Variables{{"SLURM_STEP_GPUS", "10,9"}},
                  rank_0 = gpus + Variables{{"SLURM_PROCID", "0"}};
  EXPECT_EQ(port(rank_0, "auto"), "tcp://n7:12354") << "12345 + 9";
  EXPECT_EQ(port(rank_0, "idr"), "tcp://n7:12354");
  EXPECT_EQ(port(rank_0, "jobid"), "tcp://n7:14712");
  EXPECT_EQ(port(rank_0, "fixed"), "tcp://n7:29500");
  EXPECT_EQ(port(rank_0 + Variables{{"MASTER_PORT", "1234"}}, "auto"), "tcp://n7:1234");
  EXPECT_EQ(port(rank_0 + Variables{{"MASTER_PORT", "1234"}}, "fixed"), "tcp://n7:1234");
  const Identity overruled = resolve(rank_0 + Variables{{"MASTER_PORT", "1234"}},
                                     {.init_method = "", .port_rule = backends::PortRule::kJobId});
  EXPECT_EQ(overruled.init_method, "tcp://n7:14712");
  ASSERT_EQ(overruled.warnings.size(), 1u);
  EXPECT_CONTAINS(overruled.warnings[0], "MASTER_PORT=1234 is not used");
  EXPECT_CONTAINS(error_of(kStep, {.init_method = "", .port_rule = backends::PortRule::kIdr}),
                  "SLURM_STEP_GPUS is not set");
  EXPECT_CONTAINS(error_of(kStep + Variables{{"SLURM_STEP_GPUS", "all"}}),
                  "SLURM_STEP_GPUS=all: expected GPU numbers");
  try {
    (void)backends::parse_port_rule("dice");
    ADD_FAILURE();
  } catch (const backends::ConfigurationError& error) {
    EXPECT_VALUES(error.what(), "--port-rule dice: auto, idr, jobid fixed");
  }
  EXPECT_EQ(resolve(rank_0 + Variables{{"MASTER_PORT", "65530"}}).port_window, 6);
}

// Ranks of other nodes may have other GPUs: their search covers every port where rank 0 may be.
TEST(Launchers, WithIdrEveryRankSearchesWhereRank0May) {
  for (int gpu_of_rank_0 = 0; gpu_of_rank_0 < 16; ++gpu_of_rank_0) {
    const Identity root =
        resolve(kStep + Variables{{"SLURM_PROCID", "0"},
                                  {"SLURM_STEP_GPUS", std::to_string(gpu_of_rank_0)}});
    const Identity other = resolve(kStep + Variables{{"SLURM_STEP_GPUS", "3"}});
    const int root_port = std::stoi(root.master_port_from.value),
              other_port = std::stoi(other.master_port_from.value);
    EXPECT_GE(root_port, other_port);
    EXPECT_LE(root_port + root.port_window, other_port + other.port_window);
  }
}

TEST(Launchers, WithoutAJobIdThereIsOnePort) {
  const Variables by_hand = {
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}};
  EXPECT_EQ(resolve(by_hand).port_window, 1);
  EXPECT_EQ(resolve(by_hand,
                    {.init_method = "", .port_rule = backends::PortRule::kAuto, .job_id = "mine"})
                .port_window,
            16);
  EXPECT_EQ(resolve(by_hand, {.init_method = "tcp://a:7",
                              .port_rule = backends::PortRule::kAuto,
                              .job_id = "mine"})
                .port_window,
            1);
}

TEST(Launchers, JobArraysMeetAtAFile) {
  const auto element = [](const char* id, const char* count, const char* least, const char* most,
                          const char* step) {
    return Variables{{"SLURM_JOB_ID", "9"},           {"SLURM_ARRAY_JOB_ID", "8"},
                     {"SLURM_ARRAY_TASK_ID", id},     {"SLURM_ARRAY_TASK_COUNT", count},
                     {"SLURM_ARRAY_TASK_MIN", least}, {"SLURM_ARRAY_TASK_MAX", most},
                     {"SLURM_ARRAY_TASK_STEP", step}};
  };
  const IdentityRequest at_file{.init_method = "file:///nfs/meet"};
  const Identity id = resolve(element("7", "3", "1", "7", "3"), at_file);
  EXPECT_EQ(id.rank, 2);
  EXPECT_EQ(id.world_size, 3);
  EXPECT_EQ(id.init_method, "file:///nfs/meet");
  EXPECT_EQ(id.rank_from.source, "SLURM_ARRAY_TASK_ID");
  EXPECT_EQ(resolve(element("0", "2", "0", "1", "1"), at_file).rank, 0);
  // srun of one task within each element, as in a script of "srun engine train".
  const Variables one_task = {{"SLURM_STEP_ID", "0"},
                              {"SLURM_PROCID", "0"},
                              {"SLURM_STEP_NUM_TASKS", "1"},
                              {"SLURM_LOCALID", "0"},
                              {"SLURM_STEP_NODELIST", "n3"},
                              {"SLURM_NODEID", "0"},
                              {"SLURM_STEP_TASKS_PER_NODE", "1"}};
  const Identity stepped = resolve(element("1", "2", "0", "1", "1") + one_task, at_file);
  EXPECT_EQ(stepped.rank, 1);
  EXPECT_EQ(stepped.world_size, 2);
  // Flags as in --rank $SLURM_ARRAY_TASK_ID --world_size $SLURM_ARRAY_TASK_COUNT.
  const Identity by_flags =
      resolve(element("1", "2", "0", "1", "1") + one_task,
              {.init_method = "file:///nfs/meet", .rank = 1, .world_size = 2});
  EXPECT_EQ(by_flags.rank, 1);
  EXPECT_EQ(by_flags.world_size, 2);
  EXPECT_EQ(by_flags.rank_from.source, "--rank");
  // Elsewhere the elements are runs of their own, as are elements of several tasks.
  EXPECT_EQ(resolve(element("1", "2", "0", "1", "1")).world_size, 1);
  EXPECT_EQ(resolve(element("1", "2", "0", "1", "1") + kStep, at_file).world_size, 5);
  EXPECT_VALUES(error_of(element("2", "3", "0", "5", "1"), at_file), "(--array=0-2)");
  EXPECT_CONTAINS(error_of(element("9", "2", "0", "1", "1"), at_file),
                  "SLURM_ARRAY_TASK_ID=9: expected an element from 0 to 1");
}

TEST(Launchers, OpenMpiAndPmi) {
  const Variables ompi = {{"OMPI_COMM_WORLD_RANK", "1"},
                          {"OMPI_COMM_WORLD_SIZE", "2"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                          {"OMPI_MCA_ess_base_jobid", "2130444289"},
                          {"PMIX_RANK", "1"}};
  const Identity id = resolve(ompi);
  EXPECT_EQ(id.rank, 1);
  EXPECT_EQ(id.local_world_size, 2);
  EXPECT_EQ(id.init_method, "tcp://127.0.0.1:14290");
  EXPECT_EQ(id.job_from.value, "Open MPI 2130444289");
  EXPECT_CONTAINS(error_of(ompi + Variables{{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                                            {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}),
                  "MASTER_ADDR is not set");
  const Variables pmi = {
      {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "7"}};
  EXPECT_EQ(resolve(pmi).rank_from.source, "PMI_RANK");
  EXPECT_EQ(resolve(pmi).init_method, "tcp://a:7");
  EXPECT_CONTAINS(error_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MASTER_ADDR", "a"}}),
                  "MASTER_PORT is not set");
  // `mpiexec.hydra -n 2` of MPICH and Intel MPI on one host.
  const Variables hydra = {
      {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
  EXPECT_EQ(resolve(hydra).init_method, "tcp://127.0.0.1:29500");
  EXPECT_EQ(resolve(hydra + Variables{{"MASTER_PORT", "7"}}).init_method, "tcp://127.0.0.1:7");
  for (const std::string name : {"MV2", "MVP"}) {
    const Variables mvapich = {{name + "_COMM_WORLD_RANK", "1"},
                               {name + "_COMM_WORLD_SIZE", "2"},
                               {name + "_COMM_WORLD_LOCAL_RANK", "1"},
                               {name + "_COMM_WORLD_LOCAL_SIZE", "2"}};
    EXPECT_EQ(resolve(mvapich).rank, 1);
    EXPECT_EQ(resolve(mvapich).world_size, 2);
    EXPECT_EQ(resolve(mvapich).init_method, "tcp://127.0.0.1:29500");
  }
  // srun --mpi=pmi2 says both.
  EXPECT_EQ(resolve(kStep + Variables{{"PMI_RANK", "3"}, {"PMI_SIZE", "5"}}).rank_from.source,
            "SLURM_PROCID");
  EXPECT_CONTAINS(error_of({{"PMIX_RANK", "0"}}), "PMIX_RANK=0 without a world size");
  EXPECT_EQ(
      resolve({{"PMIX_RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "7"}})
          .rank,
      1);
}

TEST(Launchers, KubernetesAndPet) {
  const Variables job = {{"JOB_COMPLETION_INDEX", "2"},
                         {"WORLD_SIZE", "4"},
                         {"MASTER_ADDR", "train-0.train"},
                         {"MASTER_PORT", "29500"}};
  EXPECT_EQ(resolve(job).rank, 2);
  EXPECT_EQ(resolve(job).rank_from.source, "JOB_COMPLETION_INDEX");
  EXPECT_EQ(resolve(job + Variables{{"RANK", "1"}, {"LOCAL_RANK", "1"}}).rank, 1)
      << "ranks started within the pod";
  EXPECT_EQ(resolve({{"JOB_COMPLETION_INDEX", "2"}}).world_size, 1) << "runs of their own";
  const Variables pet = {{"PET_NNODES", "2"},
                         {"PET_NODE_RANK", "1"},
                         {"PET_NPROC_PER_NODE", "1"},
                         {"PET_MASTER_ADDR", "m"},
                         {"PET_MASTER_PORT", "29400"}};
  const Identity id = resolve(pet);
  EXPECT_EQ(id.rank, 1);
  EXPECT_EQ(id.world_size, 2);
  EXPECT_EQ(id.init_method, "tcp://m:29400");
  EXPECT_CONTAINS(error_of(pet + Variables{{"PET_NPROC_PER_NODE", "auto"}}),
                  "PET_NPROC_PER_NODE=auto");
  EXPECT_EQ(
      resolve(pet + Variables{{"PET_NPROC_PER_NODE", "4"}, {"RANK", "6"}, {"WORLD_SIZE", "8"}})
          .rank,
      6);
}

TEST(Launchers, TorchrunKeepsItsPort) {
  const Variables torchrun = {{"RANK", "1"},
                              {"WORLD_SIZE", "2"},
                              {"LOCAL_RANK", "1"},
                              {"GROUP_RANK", "0"},
                              {"LOCAL_WORLD_SIZE", "2"},
                              {"MASTER_ADDR", "h"},
                              {"MASTER_PORT", "4000"},
                              {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                              {"TORCHELASTIC_RUN_ID", "none"}};
  const Identity id = resolve(torchrun);
  EXPECT_EQ(id.init_method, "tcp://h:4001");
  EXPECT_EQ(id.port_window, 16);
  EXPECT_EQ(id.node_rank_from.source, "GROUP_RANK");
  EXPECT_EQ(resolve(torchrun + Variables{{"TORCHELASTIC_USE_AGENT_STORE", "False"}}).init_method,
            "tcp://h:4000");
  EXPECT_CONTAINS(error_of(torchrun + Variables{{"NODE_RANK", "1"}}),
                  "NODE_RANK=1 and GROUP_RANK=0 contradict");
}

// A world that was started in each task of another launcher's job, against two launchers that
// contradict each other.
TEST(Launchers, NestingIsNoConflict) {
  const Variables inner = {{"RANK", "9"},
                           {"WORLD_SIZE", "16"},
                           {"LOCAL_RANK", "1"},
                           {"MASTER_ADDR", "n1"},
                           {"MASTER_PORT", "29500"}};
  const Identity id = resolve(kOneANode + inner);
  EXPECT_EQ(id.rank, 9);
  EXPECT_EQ(id.world_size, 16);
  EXPECT_EQ(id.local_rank, 1);
  EXPECT_EQ(id.job_from.value, "") << "the step's job is not this world's";
  Variables by_hand = inner;
  by_hand.erase("LOCAL_RANK");
  EXPECT_CONTAINS(error_of(kOneANode + by_hand),
                  "WORLD_SIZE=16 (environment) and SLURM_STEP_NUM_TASKS=4 (SLURM step) contradict");
  EXPECT_CONTAINS(error_of(kStep + inner),
                  "WORLD_SIZE=16 (environment) and SLURM_STEP_NUM_TASKS=5 (SLURM step) contradict");
  EXPECT_EQ(resolve(kStep + inner, {.init_method = "", .rank = 2, .world_size = 3}).world_size, 3)
      << "flags decide";
  // mpirun starts its daemons by srun, one a node.
  const Variables ompi = {{"OMPI_COMM_WORLD_RANK", "5"},       {"OMPI_COMM_WORLD_SIZE", "8"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                          {"OMPI_MCA_ess_base_jobid", "77"},   {"MASTER_ADDR", "n1"}};
  EXPECT_EQ(resolve(kOneANode + ompi).rank_from.source, "OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(resolve(kOneANode + ompi).init_method, "tcp://n1:10078");
  EXPECT_CONTAINS(
      error_of(kStep + ompi),
      "SLURM_STEP_NUM_TASKS=5 (SLURM step) and OMPI_COMM_WORLD_SIZE=8 (Open MPI) contradict");
}

TEST(Launchers, ConsistentDuplicatesAreFine) {
  const Identity id = resolve(kStep + Variables{{"RANK", "3"},
                                                {"WORLD_SIZE", "5"},
                                                {"MASTER_ADDR", "n7"},
                                                {"MASTER_PORT", "29500"}});
  EXPECT_EQ(id.rank_from.source, "RANK");
  EXPECT_EQ(id.local_rank_from.source, "SLURM_LOCALID");
  EXPECT_EQ(id.job_from.value, "slurm 24711.2");
  EXPECT_EQ(resolve(kStep + Variables{{"WORLD_SIZE", "5"}}).rank, 3)
      << "the common half: WORLD_SIZE exported, the rank from srun";
  EXPECT_CONTAINS(error_of(kStep + Variables{{"WORLD_SIZE", "4"}}),
                  "WORLD_SIZE=4 (environment) and SLURM_STEP_NUM_TASKS=5");
  EXPECT_CONTAINS(error_of(kStep + Variables{{"RANK", "1"}, {"WORLD_SIZE", "5"}}),
                  "RANK=1 (environment) and SLURM_PROCID=3");
  EXPECT_CONTAINS(error_of(kStep + Variables{{"RANK", "0"}, {"WORLD_SIZE", "1"}}),
                  "WORLD_SIZE=1 (environment) and SLURM_STEP_NUM_TASKS=5");
  // An interactive shell under srun is one task; what is started in it by hand is another world.
  const Variables shell = {{"SLURM_JOB_ID", "5"},
                           {"SLURM_STEP_ID", "0"},
                           {"SLURM_PROCID", "0"},
                           {"SLURM_STEP_NUM_TASKS", "1"},
                           {"SLURM_STEP_NODELIST", "n1"}};
  EXPECT_EQ(
      resolve(shell +
              Variables{
                  {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "n1"}, {"MASTER_PORT", "1"}})
          .rank,
      1);
}

// For a notice by rank 0, if each task starts a group of its own.
TEST(StartedTasks, OnlyOfSeveral) {
  const auto text = [](const Variables& variables) {
    return backends::started_tasks_text(environment_of(variables));
  };
  EXPECT_EQ(text({}), "");
  EXPECT_EQ(text(kStep), "");  // not rank 0
  EXPECT_EQ(
      text(kStep + Variables{{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "0"}}),
      "SLURM_STEP_NUM_TASKS=5");
  EXPECT_EQ(text({{"RANK", "1"}, {"WORLD_SIZE", "2"}}), "WORLD_SIZE=2");
  EXPECT_EQ(text({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), "");
  EXPECT_EQ(text({{"RANK", "0"}, {"WORLD_SIZE", "many"}}), "");
  EXPECT_EQ(text({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}}),
            "OMPI_COMM_WORLD_SIZE=4");
}

}  // namespace
