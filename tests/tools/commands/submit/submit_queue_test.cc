// engine submit and the queue: files and variables of the user, several clusters, preemption, and
// the ends of jobs.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>

#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/running_program.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"
#include "tests/tools/commands/program.h"
#include "tests/tools/commands/submit/submit_fixture.h"

namespace {

using submit_support::Submit;
using submit_support::Words;
using test_support::argv;
using test_support::CommandResult;
using test_support::expect_success;
using test_support::read_text;
using test_support::write_text;
namespace fs = std::filesystem;

// A temporary folder may be on a local file system; a line warns of that first.
void expect_failure(const CommandResult& result, int code, const std::string& words) {
  EXPECT_EQ(result.exit_code, code) << result.err;
  EXPECT_VALUES(result.err, words);
}

TEST_F(Submit, AScriptOfTheUserIsKept) {
  const std::string run = folder_ / "run", script = run + "/job.sh";
  fs::create_directories(run);
  write_text(script, "#!/bin/bash\necho mine\n");
  make("sbatch", "echo sbatch >>" + (folder_ / "told") + "; echo 12");
  program::expect_error(submit(argv("--no-wait"), {"--save-dir", run}), 73,
                        script + " engine submit");
  EXPECT_EQ(read_text(script), "#!/bin/bash\necho mine\n");
  EXPECT_EQ(scheduler_calls(), "");
  // No script of an array is written if one is in the way.
  fs::create_directories(folder_ / "s1");
  write_text(folder_ / "s1/job.sh", "mine");
  program::expect_error(submit(argv("--array 0-1"), {"--save-dir", folder_ / "s%a"}), 73,
                        folder_ / "s1/job.sh");
  EXPECT_FALSE(fs::exists(folder_ / "s0/job.sh"));
  // A link would be replaced, and its target left.
  fs::create_directories(folder_ / "linked");
  fs::create_symlink(script, folder_ / "linked/job.sh");
  program::expect_error(submit(argv("--no-wait"), {"--save-dir", folder_ / "linked"}), 73,
                        "linked/job.sh");
  // The program's own script is replaced.
  make("sbatch", "exit 1");
  EXPECT_EQ(submit(argv("--no-wait"), {"--save-dir", folder_ / "own"}).exit_code, 78);
  make("sbatch", "echo 12");
  expect_success(submit(argv("--no-wait"), {"--save-dir", folder_ / "own"}));
}

// SLURM announces a preemption with a grace time by TERM, as it announces scancel.
TEST_F(Submit, APreemptedJobGoesBack) {
  const std::string run = folder_ / "run";
  fs::create_directories(run);
  const std::string script = printed({}, {"--save-dir", run});
  make("srun", "exit 143");
  const auto turn_with = [&](const std::string& state, const std::string& preempted) {
    make("scontrol",
         "if [ \"$*\" = 'show job 12' ]; then\n"
         "echo 'JobId=12 JobName=run'\necho '   JobState=" +
             state +
             " Reason=None Dependency=(null)'\n"
             "echo '   StartTime=2026-11-30T03:50:00 EndTime=2026-11-30T04:50:00'\n"
             "echo '   PreemptEligibleTime=2026-11-30T03:50:00 PreemptTime=" +
             preempted + "'\nelse echo \"$*\" >>" + (folder_ / "told") + "; fi");
    fs::remove(run + "/job-12.txt");
    fs::remove(folder_ / "told");
    return run_job(script);
  };
  EXPECT_EQ(turn_with("RUNNING", "2026-11-30T04:00:00").exit_code, 143);
  EXPECT_EQ(scheduler_calls(), "requeue 12\n");
  EXPECT_EQ(read_text(run + "/job-12.txt"), "start none\nrequeue 143\n");
  for (const auto& [state, preempted] : {std::pair{"RUNNING", "None"},
                                         {"CANCELLED", "2026-11-30T04:00:00"},
                                         {"RUNNING", "2026-11-29T22:00:00"}}) {  // an earlier turn
    EXPECT_EQ(turn_with(state, preempted).exit_code, 143);
    EXPECT_EQ(scheduler_calls(), "") << state << " " << preempted;
    EXPECT_EQ(read_text(run + "/job-12.txt"), "start none\nend 143\n");
  }
}

// SLURM puts a job back by itself when a node is lost, maybe before the script does.
TEST_F(Submit, AJobThatIsInTheQueueAgainHasNotEnded) {
  const std::string run = folder_ / "run";
  fs::create_directories(run);
  const std::string script = printed({}, {"--save-dir", run});
  make("srun", "exit 137");
  make("scontrol", "[ \"$*\" = 'show job 12' ] && echo '   Requeue=1 Restarts=2 BatchFlag=1'");
  const auto notes_of = [&](const std::string& earlier_restarts) {
    fs::remove(run + "/job-12.txt");
    EXPECT_EQ(run_job(script, {{"SLURM_RESTART_COUNT", earlier_restarts}}).exit_code, 137);
    return read_text(run + "/job-12.txt");
  };
  EXPECT_EQ(notes_of("1"), "start none\nrequeue 137\n");
  EXPECT_EQ(notes_of("2"), "start none\nrequeue 137\nend 137\n");
}

TEST_F(Submit, OptionsHoldAgainstVariablesOfSbatch) {
  make("sbatch", "env | grep ^SBATCH_ | sort >" + (folder_ / "variables") + "; echo 12");
  const CommandResult result = expect_success(
      submit(argv("--no-wait --partition p --time 20 --mem 4G --gpus-per-node 1 --sbatch "
                  "constraint=a100"),
             {"--save-dir", folder_ / "run"},
             {{"SBATCH_PARTITION", "other"},
              {"SBATCH_TIMELIMIT", "7"},
              {"SBATCH_MEM_PER_CPU", "1G"},
              {"SBATCH_GPUS", "8"},
              {"SBATCH_CONSTRAINT", "v100"},
              {"SBATCH_NO_REQUEUE", "1"},
              {"SBATCH_ARRAY_INX", "0-3"},
              {"SBATCH_WAIT", "1"},
              {"SBATCH_ACCOUNT", "mine"},
              {"SBATCH_RESERVATION", "course"}}));
  EXPECT_EQ(read_text(folder_ / "variables"), "SBATCH_ACCOUNT=mine\nSBATCH_RESERVATION=course\n");
  EXPECT_CONTAINS(result.err,
                  ": SBATCH_ARRAY_INX, SBATCH_CONSTRAINT, SBATCH_GPUS, SBATCH_MEM_PER_CPU, "
                  "SBATCH_NO_REQUEUE, SBATCH_PARTITION, SBATCH_TIMELIMIT, SBATCH_WAIT\n");
}

TEST_F(Submit, AJobOfAnotherClusterIsAskedForThere) {
  const std::string run = folder_ / "run";
  make("sbatch", "echo '123;other'");
  for (const char* name : {"squeue", "scancel", "scontrol"})
    make(name, "echo \"" + std::string(name) + " $*\" >>" + (folder_ / "told") +
                   (name == std::string("squeue")
                        ? "; echo 'CLUSTER: other'; echo '123|RUNNING|n1|None|0:01|20:00'"
                        : ""));
  const CommandResult submitted = expect_success(submit(argv("--no-wait"), {"--save-dir", run}));
  EXPECT_CONTAINS(submitted.out, "submitted job 123 on cluster other; its output: ");
  const auto expect_asked = [&](const std::string& words) {
    EXPECT_CONTAINS(scheduler_calls(), words);
    fs::remove(folder_ / "told");
  };
  EXPECT_CONTAINS(expect_success(submit_alone({"--status", run})).out, "job 123: RUNNING on n1");
  expect_asked("squeue --clusters=other ");
  program::expect_error(submit(argv("--no-wait"), {"--save-dir", run}), 73, "already has a job");
  expect_asked("squeue --clusters=other ");
  EXPECT_CONTAINS(expect_success(submit_alone({"--cancel", run})).out, "cancelled job 123");
  expect_asked("scancel --clusters=other 123\n");
  make("squeue", "");
  EXPECT_CONTAINS(expect_success(submit_alone({"--status", run})).out, "has left the queue");
  expect_asked("scontrol --clusters=other show job 123\n");
}

TEST_F(Submit, OtherSchedulersGiveEachNodeAHost) {
  const std::string run = folder_ / "run", hosts = folder_ / "hosts";
  fs::create_directories(run);
  const auto printed_for = [&](const std::string& scheduler) {
    return printed(argv("--nodes 2 --ntasks-per-node 2 --program echo --scheduler", scheduler),
                   {"--save-dir", run});
  };
  const std::string pbs = printed_for("pbs");
  EXPECT_CONTAINS(read_text(pbs), "#PBS -l place=scatter\n");
  write_text(hosts, "n1\nn1\nn1\nn1\n");
  const std::map<std::string, std::string> variables{{"PBS_JOBID", "7"}, {"PBS_NODEFILE", hosts}};
  EXPECT_EQ(run_job(pbs, variables).exit_code, 78);
  EXPECT_CONTAINS(read_text(run + "/job-7.log"), "job 7 has 1 host (n1): expected 2");
  write_text(hosts, "n1\nn1\nn2\nn2\n");
  expect_success(run_job(pbs, variables));
  EXPECT_CONTAINS(read_text(run + "/job-7.log"), "launch --hosts n1,n2 ");
  const std::string lsf = printed_for("lsf");
  EXPECT_EQ(run_job(lsf, {{"LSB_JOBID", "8"}, {"LSB_MCPU_HOSTS", "n1 4"}}).exit_code, 78);
  EXPECT_CONTAINS(read_text(run + "/job-8.log"), "job 8 has 1 host (n1): expected 2");
  // A GPU of Grid Engine counts per slot at most sites.
  program::expect_error(
      submit(argv("--print --scheduler sge --gpus-per-node 4"), {"--save-dir", run}), 78,
      "--gpus-per-node 4 with --scheduler sge: give --ntasks-per-node");
}

TEST_F(Submit, SetUpMayChangeTheFolder) {
  const std::string run = folder_ / "run";
  fs::create_directories(run);
  make("srun", "pwd >" + (folder_ / "place"));
  expect_success(run_job(printed(argv("--setup", std::string("cd /")), {"--save-dir", run})));
  EXPECT_EQ(read_text(folder_ / "place"), fs::current_path().string() + "\n");
}

TEST_F(Submit, ALineWithACommentIsChecked) {
  const std::string run = folder_ / "run";
  fs::create_directories(run);
  const CommandResult result = run_job(
      printed(argv("--setup", std::string("false # the modules of 2026")), {"--save-dir", run}));
  EXPECT_EQ(result.exit_code, 78);
  EXPECT_CONTAINS(result.err, "a line of --setup failed");
  program::expect_error(submit(argv("--program", std::string("engine # 2")), {"--save-dir", run}),
                        2, "--program 'engine # 2' ends in a comment");
}

TEST_F(Submit, TheEndOfAJobWithoutANoteIsItsExitCode) {
  make("sbatch", "echo 12");
  make("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1");
  const auto code_of = [&](const std::string& state, const std::string& exit_code) {
    make("scontrol", "echo '   JobState=" + state +
                         " Reason=None'; echo '   ExitCode=" + exit_code + " DerivedExitCode=0:0'");
    const CommandResult result = submit({}, {"--save-dir", folder_ / "run"});
    EXPECT_CONTAINS(result.err, "SLURM says " + state);
    return result.exit_code;
  };
  EXPECT_EQ(code_of("CANCELLED", "0:15"), 143);
  EXPECT_EQ(code_of("CANCELLED", "0:0"), 143);  // before it started
  EXPECT_EQ(code_of("TIMEOUT", "0:15"), 143);
  EXPECT_EQ(code_of("TIMEOUT", "0:0"), 143);
  EXPECT_EQ(code_of("FAILED", "3:0"), 3);
  EXPECT_EQ(code_of("OUT_OF_MEMORY", "0:125"), 137);
  EXPECT_EQ(code_of("NODE_FAIL", "0:9"), 69);
}

TEST_F(Submit, AnEndedJobIsNotCancelled) {
  const std::string run = folder_ / "run";
  expect_success(submit({}, {"--save-dir", run}));
  for (const char* queue : {"", "echo '12|COMPLETING|n1|None|0:01|20:00'"}) {
    make("squeue", queue);
    EXPECT_VALUES(expect_success(submit_alone({"--cancel", run})).out, "job 12 exit code 0");
  }
  EXPECT_EQ(scheduler_calls(), "");
  make("squeue", "echo '12|PENDING||BeginTime|0:00|20:00'");  // put back by hand
  EXPECT_CONTAINS(expect_success(submit_alone({"--cancel", run})).out, "cancelled job 12;");
  EXPECT_EQ(scheduler_calls(), "scancel 12\n");
  make("squeue", "");
  write_text(run + "/job-12.txt", "submitted\nstart none\n");
  EXPECT_VALUES(expect_success(submit_alone({"--cancel", run})).out, "job 12 queue");
}

TEST_F(Submit, EverythingThatSbatchSaysIsPassedOn) {
  const Words saved{"--save-dir", folder_ / "run"};
  make("sbatch",
       "echo 'sbatch: error: group physics has no hours left' >&2\n"
       "echo 'sbatch: error: Batch job submission failed: Unspecified error' >&2; exit 1");
  expect_failure(submit({}, saved), 78,
                 "sbatch ended with exit code 1: sbatch: error: group physics has no hours "
                 "left; sbatch: error: Batch job submission failed: Unspecified error");
  make("sbatch", "echo 'sbatch: warning: 2 nodes were rounded up' >&2; echo 12");
  EXPECT_CONTAINS(expect_success(submit(argv("--no-wait"), saved)).err,
                  "sbatch: warning: 2 nodes were rounded up\n");
}

TEST_F(Submit, OnlyANumberIsAJob) {
  make("squeue", "");
  const auto answer = [&](const std::string& text, const std::string& run) {
    make("sbatch", "echo '" + text + "'");
    return submit(argv("--no-wait"), {"--save-dir", folder_ / run});
  };
  expect_failure(answer("", "a"), 69, "sbatch ''");
  expect_failure(answer("queued as seven", "b"), 69, "sbatch 'queued as seven'");
  EXPECT_CONTAINS(expect_success(answer("Submitted batch job 77 on cluster foo", "c")).out,
                  "submitted job 77 on cluster foo; ");
  EXPECT_CONTAINS(expect_success(answer("Submitted batch job 78", "d")).out, "submitted job 78; ");
}

TEST_F(Submit, TheFolderMayComeFromElsewhere) {
  make("srun", "while [[ $1 == --* ]]; do shift; done\necho \"$@\" >" + (folder_ / "arguments"));
  const std::string run = folder_ / "run", config = folder_ / "run.toml";
  fs::create_directories(run);
  fs::create_directories(run + "3");
  const auto expect_folder = [&](const Words& job, const Words& train,
                                 const std::map<std::string, std::string>& variables,
                                 const std::string& folder) {
    const std::string script = folder_ / "script.sh";
    write_text(script, expect_success(submit(argv("--print", job), train, variables)).out);
    expect_success(run_job(script, {{"SLURM_ARRAY_JOB_ID", "12"}, {"SLURM_ARRAY_TASK_ID", "3"}}));
    program::expect_words(read_text(folder_ / "arguments"), {" --save-dir " + folder});
  };
  expect_folder({}, {}, {{"ENGINE_SAVE_DIR", run}}, run);
  write_text(config, "save-dir = \"" + run + "\"\n");
  expect_folder({}, {"--config", config}, {}, run);
  expect_folder(argv("--array 3"), {}, {{"ENGINE_SAVE_DIR", folder_ / "run%a"}}, run + "3");
}

TEST_F(Submit, ValuesOfSbatchAreAccepted) {
  const Words saved{"--save-dir", folder_ / "run"};
  for (const char* memory : {"0", "16g", "16GB", "512K", "1T"})
    EXPECT_CONTAINS(read_text(printed({"--mem", memory}, saved)),
                    "#SBATCH --mem=" + std::string(memory) + "\n");
  for (const char* time : {"UNLIMITED", "infinite", "0"})
    EXPECT_CONTAINS(read_text(printed({"--time", time}, saved)), "#SBATCH --time=UNLIMITED\n");
  EXPECT_CONTAINS(read_text(printed(argv("--gpus-per-node a100:4"), saved)),
                  "#SBATCH --ntasks-per-node=4\n#SBATCH --gpus-per-node=a100:4\n");
  for (const Words& job : {argv("--mem 0"), argv("--time 0"), argv("--gpus-per-node a100:4")})
    program::expect_error(submit(argv("--print --scheduler pbs", job), saved), 2,
                          job[0] + " " + job[1] + " is for slurm");
}

TEST_F(Submit, ASignalEndsAQuestionToSlurm) {
  make("sbatch", "echo 12");
  make("squeue", "echo asked >" + (folder_ / "asked") + "; exec sleep 1000");
  test_support::Running following(argv(test_support::engine_binary(), "submit",
                                       program::quick_train({"--save-dir", folder_ / "run"})),
                                  environment());
  ASSERT_TRUE(test_support::eventually([&] { return fs::exists(folder_ / "asked"); }));
  kill(following.pid(), SIGTERM);
  EXPECT_EQ(following.wait(std::chrono::seconds(20)), 143);
  EXPECT_CONTAINS(following.out(), "submitted job 12; ");
  EXPECT_VALUES(following.err(), "job 12 --status 12");
}

TEST_F(Submit, RanksAreNotNumberedByOptions) {
  program::expect_error(submit({}, argv("--rank 0 --world-size 2 --save-dir", folder_ / "run")), 2,
                        "submit --rank");
}

}  // namespace
