"""What a key that is absent means: the same as in the published config class."""

from __future__ import annotations

import pytest

from clearhead.families import FAMILIES

# The published class leaves out what no model can be made without.
NEEDED = {"esm": {"pad_token_id": 1}}
OUR_OWN = {"attention_only", "clearhead_recurrent"}
"""What no class was published for."""


@pytest.mark.parametrize("name", sorted(set(FAMILIES) - OUR_OWN))
def test_absent_keys_mean_what_the_published_class_says(name):
    from transformers import CONFIG_MAPPING

    family = FAMILIES[name]
    named = {"model_type": name, "architectures": [family.architectures[0]]}
    published = {**CONFIG_MAPPING[name]().to_dict(), **named, **NEEDED.get(name, {})}
    assert family.read(named, "nothing") == family.read(published, "the published class")
