// The samples by which a trained model is judged: a part of its run's own data, or all of others,
// always as its snapshot states the coding.
#pragma once

#include "tools/session/session_data.h"
#include "tools/session/trained_model.h"

namespace tools {

// Reads the data for this model, on one rank. Data whose digest is not the run's, or unknown where
// the command line names data, are a hold-out: all rows and the whole text are in the test part.
// Lines about that, and about what the model lacks, are added to the warnings. A snapshot without a
// statement needs the run's own data: to judge by them, or to learn its coding again. Throws
// io::DataError where they are not there. Weights of no run, and snapshots without a digest of the
// data, are judged by data that are coded by themselves then, with a warning.
void read_judged_data(const ModelReference& model, const io::DatasetOptions& options,
                      LoadedData& loaded);

}  // namespace tools
