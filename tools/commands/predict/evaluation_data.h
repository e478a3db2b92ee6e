// Reads the samples for the evaluation of a trained model: a part of its run's own data, or all of
// other data, always with the coding that its checkpoint states.
#pragma once

#include <optional>

#include "tools/commands/predict/model_reference.h"
#include "tools/run/data/session_data.h"

namespace tools {

// Reads the data for this model, on one rank. Data whose digest is not the run's, or is unknown
// while the command line names data, are a hold-out: all rows and the whole text are in the test
// part. If the command line selects other samples of the data than the run (--limit, --seed), the
// data are first read as the run read them, to compare the digest. Lines about that, and about
// values that the model does not know, are added to the warnings. A checkpoint without a statement
// needs the run's own data: for the evaluation, or to recompute its coding. Throws io::DataError if
// they are missing. Weights without a run, and checkpoints without a digest of the data, are then
// evaluated with data that define their own coding, with a warning that counts the test part.
void read_evaluation_data(const ModelReference& model, const io::DatasetOptions& options,
                          LoadedData& loaded);

// Reads the data from which samples for a prediction take their coding, for a model that states
// none. Adds a warning if the data are not known to be the run's.
void read_coding(const ModelReference& model, const io::DatasetOptions& options,
                 LoadedData& loaded);

// Returns the options with which the run read the data at the location of `given`; nullopt if it
// read another data set, or none.
std::optional<io::DatasetOptions> as_the_run(const ModelReference& model,
                                             const io::DatasetOptions& given);

}  // namespace tools
