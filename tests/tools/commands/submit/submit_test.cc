// engine submit: the scripts that it writes, and the jobs that they are.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "io/base/text/text_parts.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/running_program.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"
#include "tests/tools/commands/program.h"
#include "tests/tools/commands/submit/submit_fixture.h"

namespace {

using test_support::argv;
using test_support::CommandResult;
using test_support::expect_success;
using test_support::read_text;
using test_support::write_text;
namespace fs = std::filesystem;

using submit_support::Submit;
using submit_support::Words;

TEST_F(Submit, EveryArgumentArrivesAsItWasTyped) {
  make("srun",
       "while [[ $1 == --* ]]; do shift; done\nprintf '%s\\0' \"$@\" >" + (folder_ / "arguments"));
  const std::string run = folder_ / "a run's $HOME \"folder\" #1 %j";
  fs::create_directories(run);
  const Words train =
      program::quick_train({"--save-dir", run, "--metrics", folder_ / "`id` \\ & ;"});
  expect_success(run_job(printed({}, {train.begin() + 1, train.end()})));
  std::string expected = test_support::engine_binary() + '\0';
  for (const std::string& word : train) expected += word + '\0';
  for (const char* more : {"--resume", "auto"}) expected += std::string(more) + '\0';
  EXPECT_EQ(read_text(folder_ / "arguments"), expected);
  EXPECT_EQ(read_text(run + "/job-12.txt"), "start none\nend 0\n");
}

TEST_F(Submit, AskForWhatTheOptionsSay) {
  const std::string script = read_text(printed(
      argv("--nodes 2 --gpus-per-node 4 --cpus-per-task 8 --mem 16G --time 1-2:30 --partition p "
           "--account a --qos q --signal-before 300 --sbatch mail-type=END --sbatch exclusive",
           std::string("--sbatch=--comment=it's late"), "--srun=cpu-bind=cores --setup",
           std::string("module load cuda")),
      {"--save-dir", folder_ / "digits"}));
  const Words lines = base::split_text(script, '\n');
  for (const char* line :
       {"#SBATCH --job-name=digits", "#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=4",
        "#SBATCH --gpus-per-node=4", "#SBATCH --cpus-per-task=8", "#SBATCH --mem=16G",
        "#SBATCH --time=1590", "#SBATCH --partition=p", "#SBATCH --account=a", "#SBATCH --qos=q",
        "#SBATCH --signal=USR1@300", "#SBATCH --mail-type=END", "#SBATCH --exclusive",
        "#SBATCH --comment=\"it's late\"", "#SBATCH --requeue", "    module load cuda"})
    EXPECT_NE(std::ranges::find(lines, line), lines.end()) << line << " in: " << script;
  program::expect_words(script, {"  srun --cpus-per-task=8 --cpu-bind=cores "});
  EXPECT_FALSE(fs::exists(folder_ / "digits"));
}

TEST_F(Submit, ElasticRanksSurviveTheLossOfANode) {
  const std::string script =
      printed(argv("--nodes 2-4"), argv("--elastic 2:4 --save-dir", folder_ / "run"));
  program::expect_words(read_text(script),
                        {"#SBATCH --nodes=2-4\n", "#SBATCH --no-kill\n",
                         "  srun --no-kill --kill-on-bad-exit=0 --wait=0 --ntasks-per-node=1 ",
                         "#SBATCH --mincpus=1\n"});
  // srun fails for the lost node, but the others have ended the training.
  make("srun", "sleep 0.1; echo '{\"state\":\"completed\"}' >" + (folder_ / "run/status.json") +
                   "; exit 1");
  fs::create_directories(folder_ / "run");
  expect_success(run_job(script, {{"SLURM_JOB_NUM_NODES", "2"}}));
  EXPECT_EQ(scheduler_calls(), "");
}

TEST_F(Submit, AJobGoesBackAsLongAsItAdvances) {
  fs::create_directories(folder_ / "run");
  const std::string script = printed({}, {"--save-dir", folder_ / "run"});
  make("srun", "date +%N >" + (folder_ / "run/latest") + "; exit 75");
  std::string requeues;
  for (int i = 0; i < 5; ++i) {
    const CommandResult result = run_job(script);
    EXPECT_EQ(result.exit_code, 75);
    EXPECT_VALUES(result.err, "job 12 queue: exit code 75");
    EXPECT_EQ(scheduler_calls(), requeues += "requeue 12\n");
  }
}

TEST_F(Submit, AJobThatDoesNotAdvanceStopsAfterThreeStarts) {
  fs::create_directories(folder_ / "run");
  const std::string script = printed({}, {"--save-dir", folder_ / "run"});
  for (const int code : {75, 69, 137}) {
    fs::remove(folder_ / "told");
    write_text(folder_ / "run/latest", "step-" + std::to_string(code));
    make("srun", "exit " + std::to_string(code));
    for (int start = 1; start <= 2; ++start) EXPECT_EQ(run_job(script).exit_code, code);
    EXPECT_EQ(scheduler_calls(), "requeue 12\nrequeue 12\n");
    const CommandResult third = run_job(script);
    program::expect_error(
        third, code,
        "job 12 stops: three starts in a row saved no new checkpoint (newest: step-" +
            std::to_string(code) + ")");
    EXPECT_EQ(scheduler_calls(), "requeue 12\nrequeue 12\n");
    // SLURM itself may start it again, after the loss of a node.
    make("srun", "echo trained >>" + (folder_ / "told"));
    program::expect_error(run_job(script), 75, "three starts in a row");
    EXPECT_EQ(scheduler_calls(), "requeue 12\nrequeue 12\n");
  }
}

TEST_F(Submit, MistakesAreNotRepeated) {
  fs::create_directories(folder_ / "run");
  const std::string script = printed({}, {"--save-dir", folder_ / "run"});
  for (const int code : {0, 2, 65, 77, 78, 79, 126, 127, 129, 130, 143}) {
    make("srun", "exit " + std::to_string(code));
    fs::remove(folder_ / "run/job-12.txt");
    EXPECT_EQ(run_job(script).exit_code, code);
    EXPECT_EQ(scheduler_calls(), "") << code;
  }
}

TEST_F(Submit, AFolderThatTheNodeLacksIsNamed) {
  program::expect_error(run_job(printed({}, {"--save-dir", folder_ / "run"})), 73,
                        "has no folder " + (folder_ / "run"));
  make("srun",
       "[[ $1 == --nodes=* ]] || exit 0\nwhile [[ $1 == --* ]]; do shift; done\n"
       "rm " +
           (folder_ / "run/job-12.txt") + "\nexec \"$@\"");
  fs::create_directories(folder_ / "run");
  const CommandResult result = run_job(printed(argv("--nodes 2"), {"--save-dir", folder_ / "run"}));
  program::expect_error(result, 73, "does not see " + (folder_ / "run"));
}

TEST_F(Submit, FollowsTheJobToItsEnd) {
  const std::string run = folder_ / "my runs/a";
  const CommandResult result = expect_success(submit({}, {"--epochs", "2", "--save-dir", run}));
  program::expect_words(result.out, {"submitted job 12; its output: " + run + "/job-12.log\n",
                                     "Training completed in: "});
  EXPECT_TRUE(fs::exists(run + "/job.sh"));
  EXPECT_EQ(read_text(run + "/job-12.txt"), "submitted\nstart none\nend 0\n");
  make("squeue", "");
  const CommandResult status =
      expect_success(test_support::engine(argv("submit --status", run), environment()));
  program::expect_words(status.out, {"job 12: 1 start, the last one from step 0; ended with exit "
                                     "code 0; output: " +
                                         run + "/job-12.log\n",
                                     "run " + run + ": completed, step 10 of 10"});
  program::expect_error(submit({}, {"--save-dir", run}), 73,
                        run + " holds a run (mlp on synthetic");
  // It goes on by its folder, as a job of another number.
  make("sbatch",
       "SLURM_JOB_ID=13 bash \"$2\" >\"${2%job.sh}job-13.log\" 2>&1 </dev/null &\necho 13");
  const CommandResult more = expect_success(
      test_support::engine(argv("submit train --epochs 3 --resume", run), environment()));
  program::expect_words(more.out, {"resumed ", "Training completed in: "});
  EXPECT_EQ(read_text(run + "/job-13.txt"), "submitted\nstart step-00000010.ckpt\nend 0\n");
}

TEST_F(Submit, ReturnsTheJobsExitCode) {
  make("srun", "echo no data >&2; exit 65");
  const CommandResult result = submit({}, {"--save-dir", folder_ / "run"});
  EXPECT_EQ(result.exit_code, 65) << result.err;
  EXPECT_CONTAINS(result.out, "no data\n");
}

TEST_F(Submit, AJobThatIsGoneIsNoSuccess) {
  make("sbatch", "echo 12");
  make("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1");
  make("scontrol", "echo '   JobState=NODE_FAIL Reason=NodeDown'; echo '   ExitCode=0:9'");
  const CommandResult result = submit({}, {"--save-dir", folder_ / "run"});
  EXPECT_EQ(result.exit_code, 69) << result.err;
  EXPECT_VALUES(result.err, "job 12 " + (folder_ / "run") + " NODE_FAIL, NodeDown, exit code 0:9");
}

TEST_F(Submit, AnInterruptStopsOnlyTheFollowing) {
  make("sbatch", "echo 12");
  test_support::Running following(argv(test_support::engine_binary(), "submit",
                                       program::quick_train({"--save-dir", folder_ / "run"})),
                                  environment());
  ASSERT_TRUE(following.writes_err("job 12: RUNNING on n1"));
  kill(following.pid(), SIGINT);
  EXPECT_EQ(following.wait(), 130);
  EXPECT_VALUES(following.err(), "job 12 engine submit --status 12");
  EXPECT_EQ(scheduler_calls(), "");
  // The run has one job at a time.
  program::expect_error(submit({}, {"--save-dir", folder_ / "run"}), 73,
                        "already has a job (job 12: RUNNING on n1, 0:01 of 20:00)");
  const CommandResult cancelled =
      expect_success(test_support::engine(argv("submit --cancel", folder_ / "run"), environment()));
  EXPECT_CONTAINS(cancelled.out, "cancelled job 12");
  EXPECT_EQ(scheduler_calls(), "scancel 12\n");
}

TEST_F(Submit, AnArrayHasAFolderForEachRun) {
  make("sbatch", "echo 40");
  const CommandResult result = expect_success(
      submit(argv("--array 0-4:2"), {"--seed", "%a", "--save-dir", folder_ / "s%a"}));
  EXPECT_CONTAINS(result.out, "submitted job 40; its output: " + (folder_ / "s%a/job-40_%a.log"));
  make("srun", "while [[ $1 == --* ]]; do shift; done\necho \"$@\" >" + (folder_ / "arguments"));
  for (const std::string task : {"0", "2", "4"}) {
    const std::string run = folder_ / ("s" + task);
    expect_success(
        run_job(run + "/job.sh", {{"SLURM_ARRAY_JOB_ID", "40"}, {"SLURM_ARRAY_TASK_ID", task}}));
    program::expect_words(read_text(folder_ / "arguments"),
                          {"--seed " + task + " ", "--save-dir " + run + " "});
    EXPECT_EQ(read_text(run + "/job-40_" + task + ".txt"), "submitted\nstart none\nend 0\n");
  }
  program::expect_words(read_text(folder_ / "s0/job.sh"), {"#SBATCH --array=0-4:2\n"});
  const auto failed = submit(argv("--array 0-1"), {"--save-dir", folder_ / "one"});
  program::expect_error(failed, 78, "--save-dir %a");
}

struct Mistake {
  int code;
  const char* text;
  Words job, train;
};

TEST_F(Submit, NoRanksOfTrainItselfMayBeStatedAsPrintConfigDoes) {
  const std::string config = folder_ / "run.toml";
  write_text(config, "spawn = \"0\"\n");
  for (const Words& words : {Words{"--config", config}, Words{"--spawn", "0"}})
    EXPECT_CONTAINS(read_text(printed({}, argv("--save-dir", folder_ / "run", words))), words[0]);
}

TEST_F(Submit, MistakesAreFoundBeforeTheQueue) {
  const std::string run = folder_ / "run", checkpoint = folder_ / "x.ckpt";
  const Words saved{"--save-dir", run};
  const std::vector<Mistake> mistakes = {
      {2,
       "unknown option '--batch-sise': did you mean '--batch-size'?",
       {},
       argv(saved, "--batch-sise 3")},
      {2, "unknown option '--node': did you mean '--nodes'?", argv("--node 2"), saved},
      {78, "--lr", {}, argv(saved, "--lr fast")},
      {78, "'p\\ntouch x' has a line break", {"--partition", "p\ntouch x"}, saved},
      {78, "train has no --save-dir", {}, {}},
      {78, "--save-dir auto makes another folder", {}, argv("--save-dir auto")},
      {2, "leave --requeue out", {}, argv(saved, "--requeue")},
      {2, "leave --spawn out", {}, argv(saved, "--spawn 2")},
      {2, "--overwrite would start over", {}, argv(saved, "--overwrite")},
      {2, "submit is for training", {}, argv(saved, "--dry-run")},
      {78, "--resume x.ckpt --resume DIR, --init-from", {}, argv(saved, "--resume", checkpoint)},
      {78, "--time '2h': expected", argv("--time 2h"), saved},
      {78, "--time 2 120 s, --signal-before 120 s", argv("--time 2"), saved},
      {78, "--nodes '4-2'", argv("--nodes 4-2"), argv(saved, "--elastic 2:4")},
      {78, "give train --elastic MIN:MAX", argv("--nodes 2-4"), saved},
      {78, "--mem 'much'", argv("--mem much"), saved},
      {2, "submit sets --output itself", argv("--sbatch output=x"), saved},
      {2, "--sbatch nodes=3: --nodes", argv("--sbatch=--nodes=3"), saved},
      {2, "--sbatch '': expected", argv("--sbatch=--"), saved},
      {2, "--setup 'echo \"hi' shell: unexpected EOF", {"--setup", "echo \"hi"}, saved},
      {2, "--setup 'a\\nb': one line", {"--setup", "a\nb"}, saved},
      {2, "--program 'apptainer exec \"x' is no line", {"--program", "apptainer exec \"x"}, saved},
      {2, "--program '': one line", {"--program", ""}, saved},
      {2, "needs --print", argv("--scheduler pbs"), saved},
      {2, "are for slurm", argv("--scheduler sge --print --array 0-3"), saved}};
  for (const Mistake& mistake : mistakes)
    program::expect_error(submit(mistake.job, mistake.train), mistake.code, mistake.text);
  EXPECT_FALSE(fs::exists(run));
  program::expect_error(submit_alone({}), 2, "nothing to submit");
  program::expect_error(submit_alone(argv("verify a b")), 2, "cannot submit 'verify'");
  program::expect_error(submit_alone(argv("--status 12 train")), 2, "stand alone");
  program::expect_error(submit_alone(argv("--status", folder_.path())), 65,
                        folder_.path().string() + ": job-N.txt");
  program::expect_error(submit_alone(argv("--status nothing")), 65, "folder run");
  make("scontrol", "echo 'scontrol: fatal: no configuration source' >&2; exit 1");
  program::expect_error(
      submit_alone(argv("--status 12")), 78,
      "scontrol ended with exit code 1: scontrol: fatal: no configuration source");
  make("scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1");
  program::expect_error(submit_alone(argv("--status 12")), 65, "is unknown to SLURM");
}

TEST_F(Submit, WithoutSlurmItSaysWhatToDo) {
  const CommandResult result = test_support::engine(
      argv("submit", program::quick_train({"--save-dir", folder_ / "run"})), {{"PATH", "/none"}});
  program::expect_error(result, 78, "sbatch SLURM PATH engine submit --print");
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(Submit, WhatSbatchSaysIsPassedOn) {
  make("sbatch", "echo 'sbatch: error: invalid partition specified: big' >&2; exit 1");
  const CommandResult rejected = submit({}, {"--save-dir", folder_ / "run"});
  EXPECT_EQ(rejected.exit_code, 78);
  EXPECT_CONTAINS(rejected.err, "sbatch ended with exit code 1: sbatch: error: invalid partition");
  make("sbatch", "echo 'sbatch: error: Unable to contact slurm controller' >&2; exit 1");
  const CommandResult unreachable = submit({}, {"--save-dir", folder_ / "run"});
  EXPECT_EQ(unreachable.exit_code, 69);
  EXPECT_CONTAINS(unreachable.err, "cannot reach SLURM");
}

// Schedulers signal the shell and the program.
TEST_F(Submit, ScriptsOfOtherSchedulersTakeTheirSignals) {
  struct Case {
    const char *scheduler, *job_variable;
    int signal, code;
  };
  for (const Case& c :
       {Case{"lsf", "LSB_JOBID", SIGUSR2, 75}, Case{"sge", "JOB_ID", SIGXCPU, 99}}) {
    const std::string run = folder_ / c.scheduler;  // the script makes it
    const std::string script =
        printed(argv("--ntasks-per-node 2 --time 20 --scheduler", std::string(c.scheduler)),
                argv("--steps 100000000 --log-every 2 --save-dir", run));
    test_support::Running job({"bash", script}, {{c.job_variable, "7"}});
    const std::string log = run + "/job-7.log";
    const bool trains = test_support::eventually(
        [&] { return fs::exists(log) && read_text(log).find("Step [") != std::string::npos; });
    EXPECT_TRUE(trains) << c.scheduler << ": " << job.err();
    for (const int child : test_support::workers_of(job.pid())) kill(child, c.signal);
    kill(job.pid(), c.signal);
    EXPECT_EQ(job.wait(), c.code) << c.scheduler << ": " << read_text(log);
    EXPECT_EQ(read_text(run + "/job-7.txt"), "start none\nrequeue 75\n");
    EXPECT_TRUE(fs::exists(run + "/latest"));
  }
}

// PBS announces nothing, so the script does, here after one second; it goes back as a new job.
TEST_F(Submit, AScriptOfPbsKeepsItsTime) {
  const std::string run = folder_ / "run";
  fs::create_directories(run);
  const std::string script = printed(argv("--scheduler pbs --time 2 --signal-before 119"),
                                     argv("--steps 100000000 --save-every 10 --save-dir", run));
  make("qsub", "echo \"$*\" >>" + (folder_ / "told"));
  EXPECT_EQ(run_job(script, {{"PBS_JOBID", "7.server"}}).exit_code, 75);
  EXPECT_EQ(scheduler_calls(), "-v FIRST_JOB=7.server " + run + "/job.sh\n");
  EXPECT_EQ(run_job(script, {{"PBS_JOBID", "8.server"}, {"FIRST_JOB", "7.server"}}).exit_code, 75);
  const Words notes = base::split_text(read_text(run + "/job-7.server.txt"), '\n');
  ASSERT_EQ(notes.size(), 5u);
  EXPECT_EQ(notes[0], "start none");
  EXPECT_TRUE(notes[2].starts_with("start step-")) << notes[2];
}

TEST_F(Submit, ScriptsOfOtherSchedulersAskForTheSame) {
  const Words host = argv(
                  "--ntasks-per-node 4 --cpus-per-task 2 --time 2:00:00 --partition p "
                  "--account a --print --scheduler"),
              job = argv("--gpus-per-node 4", host), train = argv("--save-dir", folder_ / "digits");
  const std::string pbs = expect_success(submit(argv(job, "pbs --mem 16G --nodes 2"), train)).out;
  program::expect_words(
      pbs, {"#PBS -N digits\n", "#PBS -l select=2:ncpus=8:mpiprocs=4:ngpus=4:mem=16384mb\n",
            "#PBS -l walltime=02:00:00\n", "#PBS -q p\n", "#PBS -A a\n", " launch --hosts \"$(",
            " --nproc-per-node 4 ", "sleep 7080 &\n"});
  const std::string lsf = expect_success(submit(argv(job, "lsf --mem 16G"), train)).out;
  program::expect_words(
      lsf, {"#BSUB -J digits\n", "#BSUB -n 8\n", "#BSUB -R \"span[ptile=8]\"\n",
            "#BSUB -R \"rusage[mem=16384MB]\"\n", "#BSUB -gpu \"num=4/host\"\n", "#BSUB -W 120\n",
            "#BSUB -wa USR2\n", "#BSUB -wt 2\n", "#BSUB -Q 75\n",
            " --resume auto --preempt-signal USR1,USR2,XCPU --spawn 4\n"});
  const std::string sge = expect_success(submit(argv(host, "sge"), train)).out;
  program::expect_words(sge, {"#$ -N digits\n", "#$ -pe smp 8\n", "#$ -l h_rt=7200\n",
                              "#$ -l s_rt=7080\n", "#$ -notify\n"});
  program::expect_words(expect_success(submit(argv(host, "sge --name 9x"), train)).out,
                        {"#$ -N run-9x\n"});  // no name begins with a digit
  program::expect_error(submit(argv(host, "sge --nodes 2"), train), 78, "expected 1");
  program::expect_error(submit(argv(host, "sge --mem 1G"), train), 78, "leave it out");
}

}  // namespace
