// Lists the environment variables.
#include "tools/options/input/known_variables.h"

#include <unistd.h>

#include <algorithm>

#include "io/base/text/nearest.h"
#include "tools/options/table/option_table.h"

namespace tools {
namespace {

constexpr std::string_view kPrefix = "ENGINE_";

// Names that belong to no option: those of the group, of libraries, of devices and of the tests.
constexpr const char* kFurtherVariables[] = {
    "ENGINE_SECRET",            // the job's secret (backends/store/private_files.h)
    "ENGINE_SECRET_FILE",       // a file with the job's secret
    "ENGINE_LISTEN_FD",         // from `engine launch` to rank 0: a socket
    "ENGINE_RESTART_COUNT",     // from `engine launch` to all ranks
    "ENGINE_LAUNCH_ID",         // from `engine launch` to all ranks: names this launch
    "ENGINE_ISA",               // forces kernels of an older instruction set
    "ENGINE_MPI_LIBRARY",       // the file to load as MPI
    "ENGINE_NCCL_LIBRARY",      // the file to load as NCCL
    "ENGINE_NCCL_REGISTER",     // 0: no memory is registered with NCCL
    "ENGINE_NCCL_BLOCKING",     // 1: calls of NCCL block
    "ENGINE_NVML_LIBRARY",      // the file to load as NVML
    "ENGINE_CUPTI_LIBRARY",     // the file to load as CUPTI
    "ENGINE_CUBLASLT_LIBRARY",  // the file to load as cuBLASLt, for `engine bench kernels`; or none
    "ENGINE_ALLOW_SHARED_GPU",  // several ranks per GPU, for tests
    "ENGINE_WARPGROUP_PRODUCTS",      // instructions of sm_90a
    "ENGINE_CUDA_SYNC",               // wait for each kernel
    "ENGINE_EMULATED_GPUS",           // devices of the emulated GPU
    "ENGINE_EMULATED_ORDER",          // order of the emulated GPU's threads
    "ENGINE_EMULATED_CAPTURE",        // off, no-fills: captures fail
    "ENGINE_EMULATED_COMPUTE",        // compute capabilities of these devices
    "ENGINE_EMULATED_PROCESSORS",     // streaming multiprocessors of each
    "ENGINE_EMULATED_SLICES",         // 1: slices of one card
    "ENGINE_EMULATED_MEMORY",         // bytes of memory of each
    "ENGINE_EMULATED_ARCHITECTURES",  // architectures that kernels count as compiled for
    "ENGINE_EMULATED_GRAPH_SEED",     // decides the order of a graph's nodes
    "ENGINE_EMULATED_CALLS",          // a file that lists calls of the runtime
    "ENGINE_EMULATED_FAIL",           // the call that fails
    "ENGINE_EMULATED_FAIL_FOR_GOOD",  // all later calls also fail
    "ENGINE_BINARY",                  // for tests and scripts: the program
    "ENGINE_SOURCE_DIR",              // for tests: the tree with their data
    "ENGINE_PEERS",                   // scripts that compare with PyTorch
    "ENGINE_PEER_DEVICE",
};

}  // namespace

std::vector<std::string> unknown_variables(std::span<const std::string> names,
                                           std::span<const std::string> more) {
  std::vector<std::string> known;  // without the prefix, which would make all names similar
  const auto add = [&](std::string_view name) { known.emplace_back(name.substr(kPrefix.size())); };
  for (const OptionSpec& option : train_options()) {
    add(environment_name(option.name));
    if (!option.alias.empty()) add(environment_name(option.alias));
  }
  for (const std::string& option : more) add(environment_name(option));
  for (const char* name : kFurtherVariables) add(name);
  std::vector<std::string> lines;
  for (const std::string& name : names) {
    if (!name.starts_with(kPrefix) || name.starts_with("ENGINE_TEST_")) continue;
    const std::string_view own = std::string_view(name).substr(kPrefix.size());
    if (std::find(known.begin(), known.end(), own) == known.end())
      lines.push_back(name + " in the environment is no variable of this program" +
                      base::did_you_mean(own, known, kPrefix));
  }
  return lines;
}

std::vector<std::string> empty_variables() {
  std::vector<std::string> names;
  for (const OptionSpec& option : train_options())
    for (const std::string& name : {option.name, option.alias}) {
      const std::string variable = name.empty() ? "" : environment_name(name);
      const char* const value = name.empty() ? nullptr : std::getenv(variable.c_str());
      if (value != nullptr && *value == '\0') names.push_back(variable);
    }
  return names;
}

std::vector<std::string> environment_names() {
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    names.emplace_back(text.substr(0, text.find('=')));
  }
  return names;
}

}  // namespace tools
