// Lists all commands in the order of help.
#include "tools/commands/command.h"

namespace tools {

const std::vector<Command>& commands() {
  static const std::vector<Command> table{
      {"train", "train a model on one or several ranks", train_command},
      {"launch", "start the ranks of a job on one or several nodes", launch_command},
      {"submit", "submit a training run as a job of SLURM", submit_command},
      {"verify", "compare checkpoints tensor by tensor", verify_command},
      {"eval", "evaluate a checkpoint: loss, accuracy, per class", eval_command},
      {"predict", "run a trained model on images, rows or text", predict_command},
      {"bench",
       "measure training steps, scaling or collectives",
       bench_command,
       {{"step", "measure whole training steps"},
        {"scaling", "measure training steps for several numbers of ranks"},
        {"demos", "train an epoch with processes and with devices"},
        {"comm", "measure collectives"},
        {"link", "measure the links between ranks"},
        {"kernels", "measure single operators"},
        {"save", "measure saving and loading"},
        {"io", "measure reading data and checkpoints, and the disk"},
        {"verify", "measure comparing files"}}},
      {"report", "write a web page about runs: curves, times, options", report_command},
      {"top", "show what a running job is doing", top_command},
      {"inspect", "show the contents of a checkpoint, or analyze a failed run", inspect_command},
      {"export", "write a model as .safetensors, .npz, .pth, .onnx or hf", export_command},
      {"import", "make a checkpoint from .safetensors, .npz or .pth weights", import_command},
      {"tokenize", "write the token ids of texts", tokenize_command},
      {"sample", "generate text with a trained text model", sample_command},
      {"doctor", "check the hosts, links, clocks and folders of a group", doctor_command},
      {"relay", "join connections of ranks that cannot reach each other", relay_command},
      {"env", "show the detected rank, world size and rendezvous address", env_command},
      {"version", "show version and build information", version_command},
      {"completion", "print the completion for bash, zsh or fish", completion_command},
      {"manual", "write the manual pages", manual_command, {}, /*hidden=*/true},
  };
  return table;
}

}  // namespace tools
