"""Credit rules of other papers, one function each; what their authors claim is in docs/credit_rules.md.

A rule weighs the tokens of one response, by the numbers of its source. What a source does across responses, to the
objective or by the sign of the advantage is no part of it; each docstring says where that changes the method.
"""
