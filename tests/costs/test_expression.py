"""Cost expressions in settings files and on the command line."""

import pickle

import pytest

import m3g
from m3g.costs import as_cost

CV, CSD, PRODUCT = m3g.CircularVariance(), m3g.CircularStd(), m3g.MultilinearProduct()


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("0.5*cv + 0.5*product", 0.5 * CV + 0.5 * PRODUCT),
        ("cv[:16] + product[16:]", CV[:16] + PRODUCT[16:]),
        ("cv[:0.5]+2e-1 * csd [ 0.5 : ]", CV[:0.5] + 0.2 * CSD[0.5:]),
        (".5*cv-algorithm2[1:3]", 0.5 * m3g.CircularVariance(scale="algorithm2")[1:3]),
        ("product", PRODUCT),
        ("cv[:]", CV[:]),
    ],
)
def test_text_is_parsed_into_composed_costs(text, cost):
    assert as_cost(text) == cost
    assert pickle.loads(pickle.dumps(cost)) == cost


def test_settings_accept_composed_costs():
    from m3g import losses
    from m3g.cli.command_line import read_settings

    text = "0.5*cv[:0.5] + product[16:]"
    settings = read_settings(["--loss_options.cost", text])[0]
    assert losses.build("m3g", **settings["loss_options"]).cost == 0.5 * CV[:0.5] + PRODUCT[16:]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.5*cv + ", "cost must be a sum of terms such as .*, got '0.5[*]cv [+] ', which is invalid"),
        ("0.5*cw + cv", "cost must be one of .* got 'cw'"),
        ("cv[1]", r"which is invalid from 'cv\[1\]' on"),
        ("__import__('os')+cv", "cost must be a sum of terms"),
        ("0*cv", "the weight of a cost must be a positive finite number, got 0.0"),
    ],
)
def test_invalid_expressions_are_named(text, message):
    with pytest.raises(ValueError, match=message):
        as_cost(text)
