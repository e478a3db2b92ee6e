// The fixture of tests of engine submit: programs of SLURM that are scripts. sbatch starts the job,
// srun its command, and scontrol notes a requeue.
#pragma once

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/support/command_words.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/program.h"

namespace submit_support {

using Words = std::vector<std::string>;

class Submit : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(bin());
    make("sbatch",
         "SLURM_JOB_ID=12 bash \"$2\" >\"${2%job.sh}job-12.log\" 2>&1 </dev/null &\necho 12");
    make("srun", "while [[ $1 == --* ]]; do shift; done\nexec \"$@\"");
    make("scontrol", "[[ $1 == show ]] || echo \"$*\" >>" + (folder_ / "told"));
    make("squeue", "echo '12|RUNNING|n1|None|0:01|20:00'");
    make("scancel", "echo \"scancel $*\" >>" + (folder_ / "told"));
  }
  std::string bin() const { return folder_ / "bin"; }
  void make(const std::string& name, const std::string& text) const {
    const std::string path = bin() + "/" + name;
    test_support::write_text(path, "#!/bin/bash\n" + text + "\n");
    chmod(path.c_str(), 0755);
  }
  std::map<std::string, std::string> environment() const {
    return {{"PATH", bin() + ":" + std::getenv("PATH")}};
  }
  test_support::CommandResult submit(const Words& job, const Words& train,
                                     std::map<std::string, std::string> more = {}) const {
    more.merge(environment());
    return test_support::engine(test_support::argv("submit", job, program::quick_train(train)),
                                more);
  }
  // Calls it without train, e.g. with --status.
  test_support::CommandResult submit_alone(const Words& words) const {
    return test_support::engine(test_support::argv("submit", words), environment());
  }
  // The script that --print prints.
  std::string printed(const Words& job, const Words& train) const {
    const std::string path = folder_ / "printed.sh";
    test_support::write_text(
        path, test_support::expect_success(submit(test_support::argv("--print", job), train)).out);
    return path;
  }
  // Runs the job script once, as SLURM starts it.
  test_support::CommandResult run_job(const std::string& script,
                                      std::map<std::string, std::string> more = {}) const {
    more["PATH"] = environment()["PATH"];
    more.try_emplace("SLURM_JOB_ID", "12");
    return test_support::run_command({"bash", script}, more);
  }
  std::string scheduler_calls() const {
    return std::filesystem::exists(folder_ / "told") ? test_support::read_text(folder_ / "told")
                                                     : "";
  }

  test_support::TemporaryDirectory folder_;
};

}  // namespace submit_support
