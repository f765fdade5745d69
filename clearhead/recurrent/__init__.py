"""What attention replaced: recurrent language models and translators ready to train, and their gradients a step.

They are models like all others, whose blocks have a recurrent mixer (`config.RecurrentConfig`) that takes the place of
the stream.
"""

from clearhead.recurrent.gradients import gradient_norms
from clearhead.recurrent.models import language_model, rnn_enc, rnn_search

__all__ = ["gradient_norms", "language_model", "rnn_enc", "rnn_search"]
