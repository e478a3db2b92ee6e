// All commands, in the order in which help lists them.
#include "tools/commands/command.h"

namespace tools {

const std::vector<Command>& commands() {
  static const std::vector<Command> table{
      {"train", "train a model on one or several ranks", train_command},
      {"launch", "start the ranks of a job on one or several nodes", launch_command},
      {"verify", "compare checkpoints tensor by tensor", verify_command},
      {"eval", "evaluate a checkpoint: loss and accuracy", eval_command},
      {"bench", "measure training steps, scaling or collectives", bench_command},
      {"top", "show what a running training is doing", top_command},
      {"inspect", "show the contents of a checkpoint, or analyze a failed run", inspect_command},
      {"export", "write the model of a checkpoint as .safetensors or .npz", export_command},
      {"import", "make a checkpoint from .safetensors or .npz weights", import_command},
      {"sample", "generate text with a trained text model", sample_command},
      {"doctor", "check the hosts, links, clocks and folders of a group", doctor_command},
      {"env", "show the detected rank, world size and rendezvous address", env_command},
      {"version", "show version and build information", version_command},
  };
  return table;
}

}  // namespace tools
