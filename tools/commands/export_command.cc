// `engine export`: the model of a checkpoint as .safetensors or .npz, for other programs.
#include <cstdio>

#include "io/base/visible_text.h"
#include "io/interchange/array_files.h"
#include "tools/commands/command.h"
#include "tools/options/command_line.h"
#include "tools/report/console_observer.h"
#include "tools/report/exit_codes.h"
#include "tools/run/run_reference.h"
#include "tools/session/saved_weights.h"

namespace tools {

int export_command(const Arguments& arguments) {
  CLI::App app(
      "Writes a checkpoint's model (parameters and buffers, with PyTorch's names and layouts) in "
      "another format.",
      "engine export");
  std::string path, out, weights = "model";
  bool half = false, brain = false;
  app.add_option("RUN|CKPT", path,
                 "a run's folder (its best snapshot, else the newest), or a .ckpt, .safetensors or "
                 ".npz file")
      ->required();
  app.add_option("-o,--output", out,
                 "the file to write; its extension selects the format: .safetensors or .npz")
      ->required()
      ->type_name("FILE");
  add_weights_option(app, weights);
  app.add_flag("--half", half, "convert to f16; a number beyond its range is an error");
  app.add_flag("--bf16", brain, "convert to bf16 (.safetensors only)");
  app.footer(
      "Optimizer, averaging and random-number state is not exported: the file is for using the "
      "model, not for resuming the run.\n"
      "Integer buffers (num_batches_tracked) keep their type. An existing file is replaced "
      "atomically.");
  if (!parse(app, arguments)) return kExitOk;
  if (half && brain) throw UsageError("--half and --bf16 exclude each other");
  if (!out.ends_with(".safetensors") && !out.ends_with(".npz"))
    throw UsageError("-o '" + out + "': expected a name that ends in .safetensors or .npz");

  path = snapshot_of(path, snapshot_with(weights));
  std::vector<io::NamedArray> arrays = load_weights(weights, path);
  std::erase_if(arrays, [](const io::NamedArray& a) {
    return a.section != io::Section::kParameter && a.section != io::Section::kBuffer;
  });
  std::int64_t bytes = 0;
  for (io::NamedArray& array : arrays) {
    if (half || brain)
      array = io::to_half(array, half ? base::DType::kF16 : base::DType::kBF16, path);
    bytes += static_cast<std::int64_t>(array.data.size());
  }
  io::save_arrays(arrays, out);
  std::printf("Exported %zu tensors of %s, %s bytes: %s\n", arrays.size(),
              base::visible_text(path).c_str(), with_commas(bytes).c_str(),
              base::visible_text(out).c_str());
  return kExitOk;
}

}  // namespace tools
