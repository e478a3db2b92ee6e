// Most variables are named after their option: --mail-type would be SBATCH_MAIL_TYPE.
#include "tools/commands/submit/sbatch_variables.h"

#include <cctype>
#include <cstdlib>
#include <set>

#include "io/base/text/text_parts.h"

namespace tools {
namespace {

struct OptionVariables {
  std::string_view option;  // "": removed for every script
  std::vector<const char*> variables;
};

const std::vector<OptionVariables>& other_variables() {
  static const std::vector<const char*> kMemory{"SBATCH_MEM_PER_NODE", "SBATCH_MEM_PER_CPU",
                                                "SBATCH_MEM_PER_GPU"};
  static const std::vector<OptionVariables> kTable{
      {"time", {"SBATCH_TIMELIMIT"}},
      {"mem", kMemory},
      {"mem-per-cpu", kMemory},
      {"mem-per-gpu", kMemory},
      {"gpus-per-node", {"SBATCH_GPUS", "SBATCH_GPUS_PER_TASK", "SBATCH_GPUS_PER_SOCKET"}},
      {"switches", {"SBATCH_WAIT4SWITCH"}},
      {"clusters", {"SLURM_CLUSTERS"}},
      {"",
       {"SBATCH_ARRAY_INX", "SBATCH_ERROR", "SBATCH_NO_KILL", "SBATCH_NO_REQUEUE",
        "SBATCH_OPEN_MODE", "SBATCH_OUTPUT", "SBATCH_REQUEUE", "SBATCH_SIGNAL", "SBATCH_WAIT"}}};
  return kTable;
}

std::string variable_of(std::string_view option) {
  std::string name = "SBATCH_";
  for (const char c : option)
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

// Returns the long names of the script's options, and "".
std::set<std::string> options_of(const std::string& script) {
  constexpr std::string_view kMark = "#SBATCH --";
  std::set<std::string> options{""};
  for (const std::string& line : base::split_text(script, '\n'))
    if (line.starts_with(kMark))
      options.insert(line.substr(kMark.size(), line.find('=') - kMark.size()));
  return options;
}

}  // namespace

std::vector<std::string> remove_sbatch_variables(const std::string& script) {
  const std::set<std::string> options = options_of(script);
  std::set<std::string> names;
  for (const std::string& option : options)
    if (!option.empty()) names.insert(variable_of(option));
  for (const OptionVariables& row : other_variables())
    if (options.contains(std::string(row.option)))
      names.insert(row.variables.begin(), row.variables.end());
  std::vector<std::string> removed;
  for (const std::string& name : names) {
    if (std::getenv(name.c_str()) == nullptr) continue;
    unsetenv(name.c_str());
    removed.push_back(name);
  }
  return removed;
}

}  // namespace tools
