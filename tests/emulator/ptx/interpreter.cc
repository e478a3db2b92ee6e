// Which kernel a launch means, and its blocks, one after the other.
#include "tests/emulator/ptx/interpreter.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <unordered_map>

#include "tests/emulator/ptx/decode/module.h"
#include "tests/emulator/ptx/machine/run.h"

namespace ptx {
namespace {

// The folder's files, of which each is read when a kernel may be in it.
class Folder {
 public:
  explicit Folder(const std::string& path) : path_(path) {
    for (const auto& entry : std::filesystem::directory_iterator(path))
      if (entry.path().extension() == ".ptx") files_[entry.path().stem().string()];
    if (files_.empty()) throw Fault("ENGINE_TEST_PTX: no .ptx files in " + path);
  }

  const Program& program(const void* kernel, const char* name) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Program>& program = programs_[kernel];
    if (program == nullptr) program = find(kernel, name);
    return *program;
  }

 private:
  struct File {
    std::unique_ptr<Module> module;
    std::map<std::string, std::string> kernels;  // by comparable name
  };

  File& file(const std::string& stem) {
    File& f = files_.at(stem);
    if (f.module == nullptr) {
      f.module = Module::read(path_ + "/" + stem + ".ptx");
      for (const std::string& name : f.module->kernels()) f.kernels[comparable(name)] = name;
    }
    return f;
  }

  // In the file that is named as the kernel's source. A template's instance belongs to no source,
  // and is the same in each file that has it.
  std::unique_ptr<Program> find(const void* kernel, const char* name) {
    const Symbol symbol = symbol_of(kernel);
    if (symbol.name.empty()) throw Fault(std::string(name) + ": no symbol at the kernel's address");
    const std::string wanted = comparable(symbol.name);
    const std::string stem = std::filesystem::path(symbol.source).stem().string();
    if (files_.count(stem) != 0) {
      File& f = file(stem);
      if (const auto found = f.kernels.find(wanted); found != f.kernels.end())
        return f.module->decode(found->second);
    } else {
      for (const auto& each : files_) {
        File& f = file(each.first);
        if (const auto found = f.kernels.find(wanted); found != f.kernels.end())
          return f.module->decode(found->second);
      }
    }
    throw Fault(std::string(name) + ": no PTX in " + path_ + " for " + symbol.name +
                (symbol.source.empty() ? "" : " of " + symbol.source));
  }

  std::mutex mutex_;
  std::string path_;
  std::map<std::string, File> files_;
  std::unordered_map<const void*, std::unique_ptr<Program>> programs_;
};

const char* folder_name() {
  static const char* name = std::getenv("ENGINE_TEST_PTX");
  return name != nullptr && *name != '\0' ? name : nullptr;
}

}  // namespace
}  // namespace ptx

namespace simt {

bool runs_ptx() { return ptx::folder_name() != nullptr; }

void run_ptx(const void* kernel, std::initializer_list<Parameter> parameters, Index grid,
             Index block, std::size_t shared_bytes, const char* name) {
  if (!ptx::can_run()) throw ptx::Fault("ENGINE_TEST_PTX needs a processor with AVX2");
  static ptx::Folder* folder = new ptx::Folder(ptx::folder_name());
  static const char* seed = std::getenv("ENGINE_TEST_PTX_SEED");
  const ptx::Program& program = folder->program(kernel, name);
  const auto refuse = [&](const std::string& what) {
    throw ptx::Fault(std::string(name) + ": " + what + ", unlike " + program.name + " in " +
                     program.file);
  };
  if (parameters.size() != program.parameters.size())
    refuse(std::to_string(parameters.size()) + " parameters");
  std::vector<std::byte> bytes(program.parameter_bytes);
  std::size_t n = 0;
  for (const Parameter& p : parameters) {
    const ptx::Program::Parameter& expected = program.parameters[n++];
    if (p.bytes != expected.bytes || p.alignment > std::max(expected.alignment, 1u))
      refuse("parameter " + std::to_string(n - 1) + " of " + std::to_string(p.bytes) +
             " bytes, aligned to " + std::to_string(p.alignment));
    std::copy_n(static_cast<const std::byte*>(p.value), p.bytes, bytes.data() + expected.offset);
  }
  static const std::uint32_t number =
      seed == nullptr ? 0 : static_cast<std::uint32_t>(std::strtoul(seed, nullptr, 10));
  ptx::run(program, bytes.data(), grid, block, shared_bytes, {number});
}

}  // namespace simt
